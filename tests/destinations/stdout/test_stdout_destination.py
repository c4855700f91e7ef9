import io
import json
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.destinations.contract import AnyDestination
from penstock.destinations.stdout.config import StdoutConfig
from penstock.destinations.stdout.destination import StdoutDestination
from penstock.errors import TransientError
from penstock.testing.destination import ReadableContract, Staging, batch, numbered
from penstock.testing.large_batch import LARGE


class TestStdout(ReadableContract):
    in_this_process = True
    most_memory_to_write = 4 * LARGE  # pytest keeps what is printed

    @pytest.fixture(autouse=True)
    def _capture(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def make(self, tmp_path: Path) -> StdoutDestination:
        return StdoutDestination(StdoutConfig())

    def ids(self, destination: AnyDestination) -> list[int]:
        return [json.loads(line)["id"] for line in self.capsys.readouterr().out.split("\n")[:-1]]

    def test_data_is_printed_as_it_is(self, destination: StdoutDestination, staging: Staging) -> None:
        destination.write(batch(), staging.stage([b'{"a": 1.50,  "b":"\\u00fc"}']))
        assert self.capsys.readouterr().out == '{"a": 1.50,  "b":"\\u00fc"}\n'

    def test_data_of_several_lines_is_printed_on_one(self, destination: StdoutDestination, staging: Staging) -> None:
        destination.write(batch(), staging.stage([b'{\n  "a": 1,\r\n  "b": 2\n}', b'{"c":3}']))
        assert self.capsys.readouterr().out == '{   "a": 1,    "b": 2 }\n{"c":3}\n'

    def test_a_terminal_without_a_character_gets_it_spelled_out(
        self, destination: StdoutDestination, staging: Staging, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        printed = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="ascii"))
        destination.write(batch(), staging.stage(['{"a": "größe 日"}'.encode()]))
        assert printed.getvalue() == b'{"a": "gr\\xf6\\xdfe \\u65e5"}\n'

    def test_a_record_without_data_is_skipped(self, staging: Staging) -> None:
        (part,) = staging.stage([b'{"a":1}', None, b""])
        assert part.rows == 1
        assert staging.outcomes[0].skipped == 2


class TestWholeRecords:
    @pytest.fixture
    def destination(self) -> StdoutDestination:
        return StdoutDestination(StdoutConfig(format="record"))

    def test_a_line_shows_the_record_and_where_it_is(
        self, destination: StdoutDestination, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        destination.write(batch(), Staging(destination, tmp_path).stage([b'{"a":\n1}'], partition=2, first=9))
        shown = json.loads(capsys.readouterr().out)
        assert shown.pop("timestamp").endswith("Z")
        assert shown == {
            "partition": 2, "offset": 9, "item": 0, "namespace": "web", "op": "insert", "mode": "sync", "key": None,
            "headers": {}, "data": {"a": 1},
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("data", "shown"), [(None, None), (b"", ""), (b"nope\n", "nope\n"), (b"\xff", "\ufffd"), (b"[1, 2]", [1, 2])]
    )
    def test_data_of_any_kind_keeps_its_line(
        self, data: bytes | None, shown: object, destination: StdoutDestination, tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        destination.write(batch(), Staging(destination, tmp_path).stage([data]))
        (line,) = capsys.readouterr().out.splitlines()
        assert json.loads(line)["data"] == shown


def test_output_that_nobody_reads_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = StdoutDestination(StdoutConfig())
    parts = Staging(destination, tmp_path).stage(numbered([1]))
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as output, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", output)
        with pytest.raises(TransientError, match="PEN-DST-010"):
            destination.write(batch(), parts)
        with suppress(BrokenPipeError):
            output.close()
