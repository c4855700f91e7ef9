"""Sends the example's events as browsers would: one request each, some of them twice."""

from __future__ import annotations

import http.client
import json
import os
import random
import sys
from collections.abc import Iterator

ADDRESSES = ["81.2.69.142", "200.1.7.9", "2001:db8:55::7", "10.0.0.1"]
AGENTS = [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_1 like Mac OS X) Version/17.1 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
]


def events(count: int) -> Iterator[dict[str, object]]:
    chance = random.Random(7)
    for number in range(count):
        context = {"event_id": f"e{number}", "url": f"https://shop.example/item/{number % 20}"}
        kind = chance.choices(["page_view", "order", "heartbeat"], [8, 1, 1])[0]
        event: dict[str, object] = {"event_type": kind, "eventn_ctx": context, "user": {"id": number % 50}}
        if kind == "order":
            event |= {"order": {"total": round(chance.uniform(5, 200), 2), "items": [1, 2]}, "card_number": "4111"}
        yield event
        if number % 10 == 0:  # a browser that was not sure whether the first try arrived
            yield event


def send(port: int, key: str, count: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    sent = 0
    for event in events(count):
        connection.request(
            "POST",
            f"/api/v1/event?token={key}",
            json.dumps(event),
            {
                "Content-Type": "application/json",
                "Origin": "https://shop.example",
                "X-Forwarded-For": ADDRESSES[sent % len(ADDRESSES)],
                "User-Agent": AGENTS[sent % len(AGENTS)],
            },
        )
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            sys.exit(f"the collector answered {answer.status}: {body.decode()}")
        sent += 1
    return sent


if __name__ == "__main__":
    how_many = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    port = int(os.environ.get("CLICKSTREAM_PORT", "8001"))
    print(f"sent {send(port, os.environ.get('SITE_KEY', 'site-key'), how_many)} events")
