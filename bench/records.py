"""Made-up events of an exact size, all different, with about as much repetition in them as real ones."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import numpy as np
import orjson
import pyarrow as pa

from penstock.log.group_commit import Entry
from penstock.record import ENTRY_SCHEMA

_PAGES = ("home", "search", "product", "basket", "checkout", "help", "account", "offers")
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/141.0",
    "Mozilla/5.0 (Macintosh) AppleWebKit/605.1.15 Safari/619.1",
    "Mozilla/5.0 (Windows NT 10.0) Chrome/140.0 Safari/537.36",
)
_HEADERS = (("token", "site"), ("endpoint", "js"))


def texts(count: int, size: int, seed: int = 1) -> list[bytes]:
    """JSON objects of exactly ``size`` bytes."""
    rng = random.Random(seed)
    return [_text(number, size, rng) for number in range(count)]


def _text(number: int, size: int, rng: random.Random) -> bytes:
    text = (
        f'{{"id":{number},"event_type":"page_view","page":"{rng.choice(_PAGES)}/{rng.randrange(10**6)}",'
        f'"user":{{"id":"{rng.getrandbits(64):016x}","returning":{"true" if rng.random() < 0.5 else "false"}}},'
        f'"session":"{rng.getrandbits(96):024x}","at":{1_700_000_000 + number}.{rng.randrange(1000):03d}'
    )
    if size > 330:
        text += f',"agent":"{rng.choice(_AGENTS)}","screen":[{rng.choice((1280, 1920))},{rng.choice((720, 1080))}]'
    missing = size - len(text) - len(',"note":""}')
    if missing < 0:
        raise ValueError(f"an event of {size} bytes has no room for its fields")
    return f'{text},"note":"{_words(missing, rng)}"}}'.encode()


def short_texts(count: int, size: int, seed: int = 3) -> list[bytes]:
    """JSON objects of five leaves and exactly ``size`` bytes, which 110 are enough for."""
    rng = random.Random(seed)
    return [_short_text(number, size, rng) for number in range(count)]


def _short_text(number: int, size: int, rng: random.Random) -> bytes:
    text = (
        f'{{"id":{number},"page":"{rng.choice(_PAGES)}/{rng.randrange(10**6)}","user":"{rng.getrandbits(64):016x}",'
        f'"at":{1_700_000_000 + number}.{rng.randrange(1000):03d},"session":"'
    )
    missing = size - len(text) - len('"}')
    if missing < 0:
        raise ValueError(f"an event of {size} bytes has no room for its fields")
    return f"{text}{rng.getrandbits(4 * missing + 4):0{missing + 1}x}"[: size - 2].encode() + b'"}'


def _words(length: int, rng: random.Random) -> str:
    words = ""
    while len(words) < length:
        words += f"{rng.choice(_PAGES)} {rng.getrandbits(32):x} "
    return words[:length]


def wide_events(count: int, size: int = 811, seed: int = 2) -> Iterator[bytes]:
    """JSON objects of 25 leaves (texts, integers, floats, booleans, two levels deep) and exactly ``size`` bytes."""
    rng = random.Random(seed)
    for number in range(count):
        event = {
            "event_type": "page_view",
            "eventn_ctx": {
                "event_id": f"{rng.getrandbits(128):032x}",
                "utc_time": f"2026-01-{1 + number % 28:02d}T{number % 24:02d}:{number % 60:02d}:00.000000Z",
                "url": f"https://shop.example/{rng.choice(_PAGES)}/{rng.randrange(5000)}",
                "referer": "https://search.example/",
                "title": f"{rng.choice(_PAGES)} {rng.randrange(1000)}",
                "language": rng.choice(("de", "en", "fr")),
                "user_agent": rng.choice(_AGENTS),
                "screen": {"w": rng.choice((1280, 1920, 390)), "h": rng.choice((720, 1080, 844)), "depth": 24},
            },
            "user": {
                "id": rng.randrange(20_000),
                "country": rng.choice(("DE", "FR", "US", "BR", "JP")),
                "returning": rng.random() < 0.6,
                "segment": rng.choice("abcdef"),
                "visits": rng.randrange(100),
            },
            "session": f"{rng.getrandbits(64):016x}",
            "price": round(rng.uniform(1, 400), 2),
            "quantity": rng.randrange(1, 5),
            "sku": f"SKU-{rng.randrange(900):04d}",
            "score": rng.random(),
            "load": {"dns_ms": rng.randrange(50), "page_ms": rng.randrange(900), "ok": True},
            "note": "",
        }
        missing = size - len(orjson.dumps(event))
        event["note"] = _words(max(0, missing), rng)
        yield orjson.dumps(event)


def as_entries(data: list[bytes]) -> list[Entry]:
    """Events as the collector submits them."""
    now = time.time_ns() // 1000
    return [Entry(now + place, "web", None, _HEADERS, text) for place, text in enumerate(data)]


def as_batch(data: list[bytes] | pa.Array) -> pa.RecordBatch:
    """Events as a batch of entries, as the log takes them."""
    column = data if isinstance(data, pa.Array) else pa.array(data, pa.binary())
    count = len(column)
    names, values = zip(*_HEADERS, strict=True)
    ends = pa.array(np.arange(0, count * len(names) + 1, len(names), dtype=np.int32))
    headers = pa.MapArray.from_arrays(ends, pa.array(names * count), pa.array(values * count))
    times = pa.array(time.time_ns() // 1000 + np.arange(count)).cast(ENTRY_SCHEMA.field("timestamp").type)
    same = [pa.repeat(text, count) for text in ("web", "insert", "sync")]
    columns = [times, *same, pa.nulls(count, pa.string()), headers, column]
    return pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)
