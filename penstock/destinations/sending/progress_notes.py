"""How far each key of a batch is, as the ledger keeps it: a batch that is tried again sends only what is left.

What is noted names the place of the last row that it counts. If the batch has other rows now, because the config was
changed, it says nothing. How a request has ended that was let go is kept until its rows come again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace

import orjson

from penstock import faults
from penstock.destinations.contract import Batch, TableBook
from penstock.destinations.sending.late_requests import LateEnd, Place
from penstock.destinations.sending.request_protocol import Progress, Refused
from penstock.destinations.sending.staged.keyed_rows import KeyedRows

_LATE = 0
"""The number under which late ends are noted."""


class ProgressNotes:
    """Of one batch."""

    def __init__(self, batch: Batch, book: TableBook, staged: KeyedRows) -> None:
        self._batch = batch
        self._book = book
        self._staged = staged
        self._refused: dict[str, int] = {}
        """How many refused requests of a key are noted: each once, however many there are."""

    def read(self) -> dict[str, Progress]:
        """What an earlier attempt has settled."""
        noted = self._book.progress(self._batch)
        found = ((key, self._parse(key, noted)) for key in noted if key in self._staged.keys)
        return {key: progress for key, progress in found if progress is not None}

    def note(self, progress: Mapping[str, Progress]) -> None:
        faults.reach("destination.writing")
        self._book.note_progress(self._batch, self._rows(progress))
        self._remember(progress)

    def note_at_once(self, progress: Mapping[str, Progress]) -> bool:
        faults.reach("destination.writing")
        is_noted = self._book.note_progress_at_once(self._batch, self._rows(progress))
        if is_noted:
            self._remember(progress)
        return is_noted

    def read_late(self) -> dict[str, LateEnd]:
        """How requests of these keys have ended after their batch had gone on without them."""
        found = self._book.progress(replace(self._batch, number=_LATE))
        facts = {key: json.loads(text) for key, text in found.items() if key in self._staged.keys}
        return {
            key: LateEnd(_place(end["first"]), _place(end["last"]), end["rows"], end["refused"])
            for key, end in facts.items()
        }

    def note_late(self, key: str, end: LateEnd) -> None:
        faults.reach("sending.late")
        self._book.note_progress(replace(self._batch, number=_LATE), {key: json.dumps(asdict(end))})

    def take_over(self, progress: Mapping[str, Progress]) -> None:
        """Note progress that late ends have brought, and forget these."""
        if settled := {key: each for key, each in progress.items() if each.settled}:
            self.note(settled)
        self._book.note_progress(replace(self._batch, number=_LATE), dict.fromkeys(progress, ""))

    def _rows(self, progress: Mapping[str, Progress]) -> dict[str, str]:
        rows: dict[str, str] = {}
        for key, each in progress.items():
            known = self._refused.get(key, 0)
            for number, refused in enumerate(each.refused[known:], known):
                rows[_name_of_refused(key, number)] = orjson.dumps(tuple(refused)).decode()
            rows[key] = self._text(key, each)
        return rows

    def _remember(self, progress: Mapping[str, Progress]) -> None:
        """What was refused is noted once."""
        self._refused |= {key: len(each.refused) for key, each in progress.items()}

    def _text(self, key: str, progress: Progress) -> str:
        last = self._staged.place(key, progress.settled - 1)
        return orjson.dumps({"settled": progress.settled, "last": last, "refused": len(progress.refused)}).decode()

    def _parse(self, key: str, noted: Mapping[str, str]) -> Progress | None:
        facts = json.loads(noted[key])
        settled = int(facts["settled"])
        if settled > len(self._staged.keys[key]) or self._staged.place(key, settled - 1) != tuple(facts["last"]):
            return None
        refused = [json.loads(noted[_name_of_refused(key, number)]) for number in range(facts["refused"])]
        self._refused[key] = len(refused)
        return Progress(settled, tuple(Refused(*each) for each in refused))


def _name_of_refused(key: str, number: int) -> str:
    return f"{key} {number}"


def _place(found: list[int]) -> Place:
    partition, offset, item = found
    return partition, offset, item
