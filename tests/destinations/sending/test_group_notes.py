"""Progress of many keys is noted together, and whoever added some goes on once it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from penstock.destinations.sending.group_notes import BY_THREAD, SLOW, GroupNotes
from penstock.destinations.sending.request_protocol import Progress


@dataclass
class Notebook:
    """Notes in memory. ``at_once``: whether it takes some in the event loop; ``seconds``: how long that takes."""

    at_once: bool = True
    seconds: float = 0.0
    fails: bool = False
    noted: dict[str, int] = field(default_factory=dict)
    by_thread: int = 0

    def note(self, progress: Mapping[str, Progress]) -> None:
        self.by_thread += 1
        self._note(progress)

    def note_at_once(self, progress: Mapping[str, Progress]) -> bool:
        if self.at_once:
            self._note(progress)
            began = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() < began + self.seconds:
                pass
        return self.at_once

    def _note(self, progress: Mapping[str, Progress]) -> None:
        if self.fails:
            raise OSError("the disk is full")
        self.noted |= {key: each.settled for key, each in progress.items()}


def add(notebook: Notebook, times: int) -> None:
    """Several keys at a time, each as often."""

    async def add_all() -> None:
        with ThreadPoolExecutor(1) as executor:
            notes = GroupNotes(notebook, executor)

            async def add_one(key: str) -> None:
                for settled in range(1, times + 1):
                    await notes.add(key, Progress(settled))
                    assert notebook.noted[key] == settled, "it is there when the key goes on"

            await asyncio.gather(*(add_one(key) for key in "abcd"))
            await notes.finish()

    asyncio.run(add_all())


@pytest.mark.parametrize("at_once", [True, False])
def test_a_key_goes_on_once_its_progress_is_noted(at_once: bool) -> None:
    notebook = Notebook(at_once)
    add(notebook, 5)
    assert notebook.noted == dict.fromkeys("abcd", 5)
    assert (notebook.by_thread == 0) == at_once


def test_after_a_slow_write_a_thread_makes_the_next_ones() -> None:
    notebook = Notebook(seconds=SLOW * 1.5)
    add(notebook, BY_THREAD + 5)
    assert notebook.noted == dict.fromkeys("abcd", BY_THREAD + 5)
    assert notebook.by_thread >= BY_THREAD


@pytest.mark.parametrize("at_once", [True, False])
def test_what_cannot_be_noted_ends_who_waits_for_it(at_once: bool) -> None:
    with pytest.raises(OSError, match="full"):
        add(Notebook(at_once, fails=True), 1)
