"""``python``: a user's function, and whatever it does, every record is accounted for."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from penstock.config.loading import load
from penstock.config.problems import ConfigError
from penstock.errors import RouteError
from penstock.steps.python import step as running
from penstock.steps.python.config import PythonConfig
from penstock.steps.python.step import Python
from tests.contract.step import StepContract, batch_of, failed, kept

FUNCTIONS = """
from __future__ import annotations
import json
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import neighbour

def same(table): return table
def as_batch(table: pa.Table): return table.combine_chunks().to_batches()[0]
def twice(table: pa.Table) -> pa.Table: return pa.concat_tables([table, table])
def none(table): return table.slice(0, 0)
def reverse(table): return table.take(list(range(table.num_rows))[::-1])
def drop_first(table): return table.filter(pc.not_equal(table["offset"], 100))
def picky(table):
    for data in table["data"].to_pylist():
        if b"bad" in data:
            raise ValueError(f"cannot stand {data.decode()}")
    return table
def nothing(table): return None
def no_key(table): return table.drop_columns(["key"])
def moved(table): return table.set_column(1, "offset", pc.add(table["offset"], 1000))
def words(table): return table.set_column(8, "data", pa.array(["{}"] * table.num_rows))
def frame(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame[[data["n"] != 0 for data in frame["data"]]]
    return frame.assign(data=[{**data, "n": data["n"] + neighbour.ONE} for data in frame["data"]], namespace="new")
def nan(frame: pd.DataFrame): return frame.assign(data=[{"n": float("nan")}] * len(frame))
def wants_frame(frame): return frame.assign(op="update")
number = 7
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "neighbour.py").write_text("ONE = 1\n")
    path = folder / "steps.py"
    path.write_text(FUNCTIONS)
    return path


def run(file: Path, function: str, *data: bytes | None, **options: Any) -> Any:
    return Python(PythonConfig(file=file, function=function, **options)).apply(batch_of(*data))


class TestPython(StepContract):
    name = "python"
    reads_data = False
    changes = None
    adds = True
    configs: ClassVar[list[Any]] = []

    @pytest.fixture(autouse=True)
    def _functions(self, file: Path) -> None:
        names = ("same", "as_batch", "twice", "reverse", "none")
        type(self).configs = [{"file": str(file), "function": name} for name in names]

    def test_a_record_fares_the_same_in_any_company(self, file: Path) -> None:
        type(self).configs = [{"file": str(file), "function": name} for name in ("same", "reverse", "none")]
        super().test_a_record_fares_the_same_in_any_company()


def test_rows_that_do_not_come_back_are_skipped_and_further_ones_are_added(file: Path) -> None:
    gone = run(file, "drop_first", b"{}", b"{}")
    assert (gone.kept.column("offset").to_pylist(), gone.skipped, gone.added) == ([101], 1, 0)
    more = run(file, "twice", b"1", b"2")
    assert (kept(more), more.skipped, more.added) == ([b"1", b"1", b"2", b"2"], 0, 2)


def test_only_the_rows_that_it_raises_for_fail_with_what_it_says(file: Path) -> None:
    data = [b"bad %d" % n if n in (0, 17, 18, 40) else b"good %d" % n for n in range(41)]
    outcome = run(file, "picky", *data)
    assert [offset - 100 for offset, _ in failed(outcome)] == [0, 17, 18, 40]
    assert kept(outcome) == [each for each in data if each.startswith(b"good")]
    assert outcome.failures.to_pylist()[1]["message"] == "ValueError: cannot stand bad 17"
    assert outcome.failures.to_pylist()[1]["code"] == "python_error"


def test_a_function_that_always_raises_is_not_called_without_end(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MOST_CALLS", 20)
    outcome = run(file, "picky", *[b"bad"] * 1000)
    assert (outcome.kept.num_rows, outcome.failures.num_rows) == (0, 1000)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nothing", "TypeError: the function returned NoneType, not a pyarrow.Table"),
        ("no_key", "TypeError: the function returned no column 'key'"),
        ("moved", "TypeError: the function returned a row with a partition and offset that it was not given"),
        ("nan", "ValueError: Out of range float values are not JSON compliant"),
        ("frame", "KeyError: 'n'"),
    ],
)
def test_a_result_that_cannot_be_used_fails_the_records(file: Path, function: str, message: str) -> None:
    outcome = run(file, function, b"{}", b"{}")
    assert [row["message"] for row in outcome.failures.to_pylist()] == [message] * 2


def test_a_frame_has_the_data_as_python_has_it(file: Path) -> None:
    outcome = run(file, "frame", b'{"n": 1, "s": "\xc3\xa9"}', b'{"n": 0}', b'{"n": 2.5}', b"{")
    assert kept(outcome) == ['{"n":2,"s":"é"}'.encode(), b'{"n":3.5}']
    assert outcome.kept.column("namespace").to_pylist() == ["new", "new"]
    assert (outcome.skipped, failed(outcome)) == (1, [(103, "python_error")])
    plain = run(file, "wants_frame", b"[1]", None, batch="pandas")
    assert kept(plain) == [b"[1]", None]
    assert plain.kept.column("op").to_pylist() == ["update", "update"]
    assert plain.kept.column("headers").to_pylist() == [[("token", "site")]] * 2


def test_other_types_become_those_of_records(file: Path) -> None:
    assert kept(run(file, "words", b"[]")) == [b"{}"]


def test_the_function_does_not_travel_but_its_path_does(file: Path) -> None:
    step = Python(PythonConfig(file=file, function="same"))
    step.apply(batch_of(b"{}"))
    assert b"def same" not in pickle.dumps(step)
    assert pickle.loads(pickle.dumps(step)).apply(batch_of(b"{}")).kept.num_rows == 1


def test_a_file_that_raises_itself_stops_the_route_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "steps.py"
    path.write_text("def f(t): return t\nraise OSError('no such model')\n")
    with pytest.raises(RouteError, match="OSError: no such model"):
        run(path, "f", b"{}")


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "cannot be read"), ("def f(:", "is not Python"), ("def g(t): return t", "has no function 'f'")],
)
def test_a_file_that_cannot_work_is_refused_before_anything_is_run(
    tmp_path: Path, text: str | None, words: str
) -> None:
    if text is not None:
        (tmp_path / "steps.py").write_text(text)
    with pytest.raises(ValidationError, match=words):
        PythonConfig(file=tmp_path / "steps.py", function="f")


def test_the_path_starts_at_the_config_and_a_mistake_is_told_with_its_line(tmp_path: Path) -> None:
    text = (
        "name: shop\nsources: {web: {type: file, path: ./x}}\nroutes:\n  out:\n    from: web\n    steps:\n"
        "      - python: {file: steps.py, function: f}\n    to: {type: 'null'}\n"
    )
    (tmp_path / "pipeline.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"pipeline.yaml:7:17: .*cannot be read"):
        load(tmp_path / "pipeline.yaml")
    (tmp_path / "steps.py").write_text("f = len\n")
    assert json.loads(load(tmp_path / "pipeline.yaml").model_dump_json())["name"] == "shop"
