"""What every source owes. It is found by its name in the registry and runs in a process of its own."""

from __future__ import annotations

import json
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Event
from typing import ClassVar

import pytest

from penstock.config.component import SourceConfig
from penstock.errors import LogError
from penstock.log.local_log import LocalLog
from penstock.record import Header, Record, records
from penstock.registry import Kind, component
from penstock.sources.contract import SourceContext
from penstock.stop_signals import call_on_stop_signals
from penstock.testing.forked import make_process
from penstock.testing.waiting import HANG, eventually

NAME = "under_test"


def log_records(log_dir: Path) -> list[Record]:
    """Everything in the log, partition by partition."""
    log = LocalLog(log_dir)
    try:
        return [r for partition in log.partitions() for batch in log.read(partition, 0) for r in records(batch)]
    except LogError as error:
        if "no partition" in str(error):
            return []
        raise


def run_source(type_name: str, config: str, context: SourceContext, once: bool) -> None:
    """The body of a source's process: SIGTERM sets ``stopping``, as the supervisor's children do."""
    stopping = Event()
    with call_on_stop_signals(stopping.set):
        card = component(Kind.SOURCE, type_name)
        card.implementation_class()(card.config_class().model_validate_json(config), context).run(stopping, once)


@contextmanager
def running(type_name: str, config: str, context: SourceContext, once: bool = False) -> Iterator[BaseProcess]:
    """A source in a process of its own; stopped by SIGTERM at the end if it still runs, and it must stop then."""
    process = make_process(run_source, type_name, config, context, once)
    process.start()
    try:
        yield process
    finally:
        if process.is_alive():
            process.terminate()
        process.join(HANG)
        hangs = process.is_alive()
        if hangs:
            process.kill()
            process.join()
    assert not hangs, "it goes on after SIGTERM"


def event(number: int) -> bytes:
    return b'{"n":%d,"price":2.50}' % number


class ReaderContract(ABC):
    """For every source. What it is fed are JSON objects, one each: ``{"n": 7, "price": 2.50}``.

    Gives: ``type_name``, ``exactly_once``, ``config``, ``feed``; ``namespace`` and ``taken`` where the source differs.
    Asserted: what is fed is in the log, in order, its numbers digit by digit, under the namespace; it ends with code 0
    on SIGTERM; a restart goes on without loss or doubles; ``kill -9`` loses nothing that it had taken (and doubles
    nothing if ``exactly_once``); every option has a description.
    """

    type_name: ClassVar[str]
    """Its name in the registry."""
    exactly_once: ClassVar[bool]
    """Whether a line that was fed is in the log once even if the source was killed before it could say so."""
    namespace: ClassVar[str] = NAME
    """Of the records that it makes; by itself the source's name in the config."""

    @abstractmethod
    def config(self, folder: Path) -> str:
        """Options as JSON, the same at every call for a folder. The folder is there and this test's own."""

    @abstractmethod
    def feed(self, folder: Path, lines: list[bytes]) -> bool:
        """Give the running source some lines. True once it has them (or will surely find them), False if it refused."""

    def taken(self, context: SourceContext) -> list[Record]:
        """The records of what was fed, if the source also leaves others."""
        return log_records(context.log_dir)

    @pytest.fixture
    def context(self, tmp_path: Path) -> SourceContext:
        (tmp_path / "state").mkdir()
        return SourceContext(NAME, tmp_path / "log", "{}", tmp_path / "state")

    def _feed(self, context: SourceContext, lines: list[bytes]) -> None:
        eventually(lambda: self.feed(context.state_dir.parent, lines), "feeding the source")

    def test_what_is_fed_is_in_the_log_in_order_under_the_sources_name(self, context: SourceContext) -> None:
        with running(self.type_name, self.config(context.state_dir.parent), context):
            self._feed(context, [event(n) for n in range(100)])
            eventually(lambda: len(self.taken(context)) >= 100, "100 records")
        found = self.taken(context)
        assert numbers(found) == list(range(100))
        assert {record.namespace for record in found} == {self.namespace}
        assert all(b"2.50" in (record.data or b"") for record in found)

    def test_it_ends_well_when_it_is_told_to_stop(self, context: SourceContext) -> None:
        with running(self.type_name, self.config(context.state_dir.parent), context) as process:
            self._feed(context, [event(1)])
            eventually(lambda: len(self.taken(context)) == 1, "the record")
            assert process.pid is not None
            os.kill(process.pid, signal.SIGTERM)
            process.join(HANG)
            assert process.exitcode == 0

    def test_a_restart_goes_on_without_loss_or_doubles(self, context: SourceContext) -> None:
        for start in (0, 50, 100):
            with running(self.type_name, self.config(context.state_dir.parent), context):
                self._feed(context, [event(n) for n in range(start, start + 50)])
                eventually(lambda end=start + 50: len(self.taken(context)) >= end, "the records")  # type: ignore[misc]
        assert sorted(numbers(self.taken(context))) == list(range(150))

    def test_a_kill_loses_nothing_that_was_taken(self, context: SourceContext) -> None:
        sure: set[int] = set()
        for start in range(0, 300, 100):
            with running(self.type_name, self.config(context.state_dir.parent), context) as process:
                for number in range(start, start + 100, 10):
                    self._feed(context, [event(n) for n in range(number, number + 10)])
                    sure.update(range(number, number + 10))
                process.kill()
        with running(self.type_name, self.config(context.state_dir.parent), context):
            self._feed(context, [event(300)])
            sure.add(300)
            eventually(lambda: sure <= set(numbers(self.taken(context))), "every number that was taken")
        found = numbers(self.taken(context))
        assert set(found) == sure
        assert not self.exactly_once or len(found) == len(sure)

    def test_every_option_is_described(self) -> None:
        config_class: type[SourceConfig] = component(Kind.SOURCE, self.type_name).config_class()
        bare = [name for name, field in config_class.model_fields.items() if name != "type" and not field.description]
        assert bare == []


class SourceContract(ReaderContract):
    """For sources that are fed text, which may be anything.

    Gives: what ``ReaderContract`` asks for; ``feed`` is given lines that are no JSON, too.
    Asserted: a line that cannot be read is in the log with its bytes and the header ``malformed``, whose text has the
    number of the line among those that were fed together; the lines around it are there as ever.
    """

    def test_input_that_cannot_be_read_is_kept_with_its_bytes_and_a_reason(self, context: SourceContext) -> None:
        with running(self.type_name, self.config(context.state_dir.parent), context):
            self._feed(context, [event(1), b'{"broken":', b"[1]", b'{"a":"\xff"}', event(2)])
            eventually(lambda: len(self.taken(context)) >= 5, "5 records")
        found = self.taken(context)
        bad = [record for record in found if Header.MALFORMED in record.headers]
        assert [record.data for record in bad] == [b'{"broken":', b"[1]", b'{"a":"\xff"}']
        assert [any(str(n) in r.headers[Header.MALFORMED] for r in bad) for n in (2, 3, 4)] == [True] * 3
        assert numbers(found) == [1, 2]


def numbers(found: list[Record]) -> list[int]:
    """The ``n`` of every readable record."""
    return [json.loads(record.data or b"")["n"] for record in found if Header.MALFORMED not in record.headers]
