"""Made-up shop events, the same ones at every run."""

from __future__ import annotations

import random
from collections.abc import Iterator

import orjson

_TYPES = ("page_view", "page_view", "page_view", "add_to_cart", "purchase", "heartbeat")
_COUNTRIES = ("DE", "FR", "US", "BR", "JP", "IN", "NG", "SE")
_AGENTS = ("Firefox/141.0", "Chrome/140.0", "Safari/19.1")


def shop_events(count: int, seed: int = 7) -> Iterator[bytes]:
    """JSON objects of about half a kilobyte, each with an event id of its own (``e-<number>``)."""
    rng = random.Random(seed)
    for number in range(count):
        kind = rng.choice(_TYPES)
        event: dict[str, object] = {
            "event_type": kind,
            "eventn_ctx": {
                "event_id": f"e-{number}",
                "utc_time": f"2026-01-{1 + number % 28:02d}T{number % 24:02d}:{number % 60:02d}:00.000000Z",
                "url": f"https://shop.example/{kind}/{rng.randrange(5000)}?ref={rng.randrange(100)}",
                "referer": "https://search.example/" if rng.random() < 0.3 else None,
                "screen": {"w": rng.choice((1280, 1920, 390)), "h": rng.choice((720, 1080, 844))},
                "user_agent": rng.choice(_AGENTS),
            },
            "user": {
                "id": rng.randrange(20_000),
                "country": rng.choice(_COUNTRIES),
                "returning": rng.random() < 0.6,
                "tags": [rng.choice("abcdef") for _ in range(rng.randrange(3))],
            },
            "session": f"{rng.getrandbits(64):016x}",
        }
        if kind in ("add_to_cart", "purchase"):
            event["price"] = round(rng.uniform(1, 400), 2)
            event["quantity"] = rng.randrange(1, 5)
            event["sku"] = f"SKU-{rng.randrange(900):04d}"
        yield orjson.dumps(event)
