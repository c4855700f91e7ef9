"""What ``events_to_postgres`` loads: browser events whose schema keeps growing and now and then slips.

An event is about 0.7 KB of JSON with 25 leaves: nested objects, texts, integers, floats, booleans, an array. 5 % bring
one of 40 more fields, which come into use one after the other over the whole run; 1 % have a text where the others have
an integer; 10 % have the id of an earlier event and other values. The same numbers always give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.records import as_batch
from penstock.log.config import LogConfig
from penstock.log.local_log import LocalLog

FRAME = 2000
LEAVES = 25
EXTRA_FIELDS = 40
EXTRA_SHARE = 0.05
CONFLICT_SHARE = 0.01
REPEATED_SHARE = 0.10
KEY = "eventn_ctx_event_id"

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Clickstream:
    """So many events. The first ``opening`` have no conflict: that is when the columns get their types."""

    events: int
    opening: int
    seed: int = 4

    def frames(self) -> Iterator[Frame]:
        distinct = 0
        for first in range(0, self.events, FRAME):
            frame = self._frame(first, min(FRAME, self.events - first), distinct)
            distinct += frame.distinct
            yield frame

    def _frame(self, first: int, count: int, distinct: int) -> Frame:
        rng = np.random.default_rng((self.seed, first))
        numbers = np.arange(first, first + count)
        repeated = (rng.random(count) < REPEATED_SHARE) & (numbers > 0)
        new_before = distinct + np.concatenate(([0], np.cumsum(~repeated)[:-1]))
        identities = np.where(repeated, (rng.random(count) * new_before).astype(np.int64), new_before)
        later = self.events - self.opening
        rate = CONFLICT_SHARE * self.events / later if later > 0 else 0.0
        conflict = (rng.random(count) < rate) & (numbers >= self.opening)
        in_use = 1 + numbers * EXTRA_FIELDS // self.events
        extra = np.where(rng.random(count) < EXTRA_SHARE, rng.integers(0, in_use), -1)
        lines = [
            _event(*row)
            for row in zip(
                numbers.tolist(), _hashed(identities), extra.tolist(), conflict.tolist(),
                rng.integers(0, 2**62, count).tolist(), strict=True,
            )
        ]  # fmt: skip
        return Frame(
            lines,
            int(np.count_nonzero(~repeated)),
            int(np.count_nonzero(conflict)),
            frozenset(np.unique(extra[extra >= 0]).tolist()),
        )


@dataclass(frozen=True)
class Frame:
    """Events that are appended together, and what is in them."""

    lines: list[bytes]
    distinct: int
    """How many ids are seen here for the first time."""
    conflicts: int
    extra: frozenset[int]


@dataclass
class Written:
    """A clickstream on disk: as a log of two partitions, as the collector's workers leave it, and as lines."""

    log: Path
    lines: Path
    events: int = 0
    distinct: int = 0
    conflicts: int = 0
    bytes: int = 0
    extra: set[int] = field(default_factory=set)

    @property
    def columns(self) -> int:
        """Columns of a table with all the events, without the one for conflicts."""
        return LEAVES + len(self.extra)


PARTITIONS = 2


def write(stream: Clickstream, folder: Path, source: str, as_lines: bool = True) -> Written:
    """Frame by frame, so that no size needs more memory. Neighbouring frames are in different partitions."""
    folder.mkdir(parents=True)
    written = Written(folder / "log", folder / "events.ndjson")
    log = LocalLog(written.log, LogConfig(fsync="never"))
    with ExitStack() as open_files:
        writers = [open_files.enter_context(log.writer(source, worker)) for worker in range(PARTITIONS)]
        lines = open_files.enter_context(written.lines.open("wb"))
        for number, frame in enumerate(stream.frames()):
            writers[number % PARTITIONS].append(as_batch(frame.lines))
            text = b"\n".join(frame.lines) + b"\n"
            if as_lines:
                lines.write(text)
            written.bytes += len(text) - len(frame.lines)
            written.events += len(frame.lines)
            written.distinct += frame.distinct
            written.conflicts += frame.conflicts
            written.extra |= frame.extra
    return written


def _hashed(numbers: Numbers) -> list[str]:
    """A different id for every number, without any order: what a random UUID does to an index."""
    halves = []
    for salt in (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03):
        mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(salt)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        halves.append((mixed ^ (mixed >> np.uint64(31))).tolist())
    return [
        f"{high >> 32:08x}-{high >> 16 & 0xFFFF:04x}-{high & 0xFFFF:04x}-{low:016x}"
        for high, low in zip(*halves, strict=True)
    ]


_PAGES = ("home", "search", "product", "basket", "checkout", "help", "account", "offers")
_TYPES = ("page_view", "click", "add_to_basket", "purchase")
_LANGUAGES = ("de-DE", "en-GB", "en-US", "fr-FR", "pt-BR", "ja-JP", "es-ES", "nl-NL")
_TAGS = ('["new","summer"]', '["sale"]', "[]", '["returning","mobile",3]')
_SCREENS = ((1280, 720), (1920, 1080), (390, 844), (2560, 1440))
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:141.0) Gecko/20100101 Firefox/141.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1.15 Safari/619.1",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/140.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) Version/18.5 Mobile Safari/604.1",
)


def _event(number: int, identity: str, extra: int, conflict: bool, draw: int) -> bytes:
    """One event. Its values are parts of ``draw``, a random number of 62 bits."""
    page, agent, screen = _PAGES[draw & 7], _AGENTS[draw >> 3 & 3], _SCREENS[draw >> 5 & 3]
    product, user, cents = draw >> 7 & 0xFFF, draw >> 19 & 0xFFFFF, draw >> 39 & 0x7FFF
    second = number // 50
    time = f"2026-03-{1 + second // 86400 % 28:02d}T{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    quantity = '"a few"' if conflict else 1 + (draw >> 54 & 7)
    more = f',"props":{{"field_{extra:02d}":{_extra(extra, cents)}}}' if extra >= 0 else ""
    return (
        f'{{"event_type":"{_TYPES[draw >> 57 & 3]}","_timestamp":"{time}.{number % 50 * 20000:06d}Z",'
        f'"source_ip":"10.{user >> 16}.{user >> 8 & 255}.{user & 255}","api_key":"site","eventn_ctx":{{'
        f'"event_id":"{identity}","utc_time":"{time}.000000Z",'
        f'"url":"https://shop.example/{page}/{product}?campaign=spring-{cents & 63}",'
        f'"referer":"https://search.example/?q={page}+{product}","page_title":"{page} {product}",'
        f'"user_language":"{_LANGUAGES[draw >> 59 & 7]}","user_agent":"{agent}",'
        f'"local_tz_offset":{(draw >> 5 & 15) * 60},"screen":{{"width":{screen[0]},"height":{screen[1]}}}}},'
        f'"user":{{"id":{user},"anonymous_id":"{draw:015x}","returning":{"true" if draw & 8 else "false"},'
        f'"country":"{_LANGUAGES[draw >> 59 & 7][3:]}"}},"price":{cents / 100},"quantity":{quantity},'
        f'"sku":"SKU-{product:04d}","tags":{_TAGS[draw >> 13 & 3]},'
        f'"load":{{"dns_ms":{(cents & 1023) / 8},"page_ms":{cents >> 3},"ok":{"true" if draw & 0xF00 else "false"}}}'
        f"{more}}}"
    ).encode()


def _extra(field: int, value: int) -> str:
    """A value of the type that every event has in this field."""
    return (str(value), f"{value / 4}", f'"choice {value & 31}"', "true" if value & 1 else "false")[field % 4]
