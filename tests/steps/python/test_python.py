"""``python``: a user's function, and whatever it does, every record is accounted for."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import signal
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import penstock
from penstock.config.loading import load
from penstock.config.problems import ConfigError
from penstock.errors import RouteError
from penstock.steps.python.config import PythonConfig
from penstock.steps.python.step import Python
from penstock.steps.python.written_numbers import JsonNumbers
from penstock.testing.step import StepContract, batch_of, failed, kept

FUNCTIONS = """
from __future__ import annotations
import json
import os
import signal
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
def seen(frame: pd.DataFrame): return frame.assign(data=[{**data, "seen": 1} for data in frame["data"]])
def doubled(frame: pd.DataFrame): return frame.assign(data=[{"n": data["n"] * 2} for data in frame["data"]])
def nan(frame: pd.DataFrame): return frame.assign(data=[{"n": float("nan")}] * len(frame))
def wants_frame(frame): return frame.assign(op="update")
def leaves(table):
    if b"bad" in table["data"].to_pylist():
        raise SystemExit(3)
    return table
def interrupted(table): raise KeyboardInterrupt
def while_interrupted(table): os.kill(os.getpid(), signal.SIGINT)
def no_text(table): raise ValueError("\\udc80")
def own_words(table):
    words = [data.decode() for data in table["data"].to_pylist()]
    ops, modes = zip(*(word.split() for word in words))
    return table.set_column(4, "op", pa.array(ops)).set_column(5, "mode", pa.array(modes))
def without(frame: pd.DataFrame): return frame.assign(**{data["lack"]: None for data in frame["data"]})
def talks(table):
    print("hello")
    return table
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


@settings(max_examples=30, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=300))
def test_whichever_rows_it_raises_for_no_other_one_fails(file: Path, goods: list[bool]) -> None:
    data = [b"good %d" % n if good else b"bad %d" % n for n, good in enumerate(goods)]
    outcome = run(file, "picky", *data)
    assert [offset - 100 for offset, _ in failed(outcome)] == [n for n, good in enumerate(goods) if not good]
    assert kept(outcome) == [each for each in data if each.startswith(b"good")]


@pytest.mark.parametrize("every", [1, 2, 300, 100_000])
def test_among_very_many_rows_only_the_bad_ones_fail(file: Path, every: int) -> None:
    count = 2_000 if every < 300 else 100_000
    data = [b"bad" if n % every == 0 else b"good" for n in range(count)]
    outcome = run(file, "picky", *data)
    assert [offset - 100 for offset, _ in failed(outcome)] == list(range(0, count, every))
    assert kept(outcome) == [b"good"] * (count - len(range(0, count, every)))


def test_bad_rows_cost_few_calls(tmp_path: Path) -> None:
    """Those that stand alone about two logarithms of the batch each, those that stand together one each."""
    for bad, most in ([500], 22), (range(0, 1000, 100), 10 * 20), (range(1000), 1010):
        path = tmp_path / "steps.py"
        path.write_text(
            f"calls = rows = 0\nbad = set({[100 + n for n in bad]})\n"
            "def count(table):\n"
            "    global calls, rows\n"
            "    calls += 1\n"
            "    rows += table.num_rows\n"
            "    assert not bad & set(table['offset'].to_pylist()), (calls, rows)\n"
            "    return table.set_column(6, 'key', [[f'{calls} {rows}'] * table.num_rows])\n"
        )
        outcome = run(path, "count", *[b"{}"] * 1000)
        told = [*outcome.kept.column("key").to_pylist(), outcome.failures.column("message").to_pylist()[-1]]
        calls, rows = max(tuple(map(int, re.findall(r"[0-9]+", text))) for text in told)
        assert calls <= most
        assert rows <= 5 * 1000


def test_a_function_that_ends_the_program_fails_the_rows_that_it_does_so_for(file: Path) -> None:
    outcome = run(file, "leaves", b"good", b"bad", b"good")
    assert (kept(outcome), failed(outcome)) == ([b"good", b"good"], [(101, "python_error")])
    assert outcome.failures.to_pylist()[0]["message"] == "SystemExit: 3"


def _another_handler(number: int, frame: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("handler", [signal.default_int_handler, _another_handler])
def test_who_interrupts_the_program_is_heard(file: Path, handler: Any) -> None:
    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(file, "while_interrupted", b"{}")
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_function_that_raises_an_interrupt_itself_fails_like_any_other(file: Path) -> None:
    outcome = run(file, "interrupted", b"{}", b'{"n":1}')
    assert failed(outcome) == [(100, "python_error"), (101, "python_error")]
    assert outcome.failures.column("message").to_pylist() == ["KeyboardInterrupt: "] * 2


def test_an_exception_whose_text_is_no_unicode_can_be_told(file: Path) -> None:
    assert run(file, "no_text", b"{}").failures.to_pylist()[0]["message"] == "ValueError: \\udc80"


def test_rows_with_an_op_or_mode_that_no_record_has_fail_alone(file: Path) -> None:
    outcome = run(file, "own_words", b"insert copy", b"zap sync", b"delete complete", b"noop INSERT")
    assert kept(outcome) == [b"insert copy", b"delete complete"]
    assert [(row["offset"], row["code"], row["message"]) for row in outcome.failures.to_pylist()] == [
        (
            101,
            "bad_result",
            "the function returned the op 'zap'; it must be one of insert, update, delete, command, noop",
        ),
        (103, "bad_result", "the function returned the mode 'INSERT'; it must be one of copy, sync, complete"),
    ]


@pytest.mark.parametrize("name", ["op", "mode", "namespace", "timestamp"])
def test_a_row_that_lacks_what_every_record_has_fails(file: Path, name: str) -> None:
    outcome = run(file, "without", json.dumps({"lack": name}).encode())
    (failure,) = outcome.failures.to_pylist()
    assert (failure["code"], name in failure["message"]) == ("bad_result", True)


def test_what_it_prints_does_not_get_into_standard_output(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(file, "talks", b"{}")
    assert capsys.readouterr() == ("", "hello\n")


DATACLASS = """
from __future__ import annotations
from dataclasses import dataclass, field
from typing import ClassVar

@dataclass
class Order:
    kind: ClassVar[str] = "order"
    items: list[str] = field(default_factory=list)

def same(table):
    assert Order().items == []
    return table
"""


def test_a_file_may_have_dataclasses_with_annotations_that_are_text(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(DATACLASS)
    assert kept(run(tmp_path / "steps.py", "same", b"{}")) == [b"{}"]


def test_two_files_of_one_name_and_files_named_as_libraries_keep_out_of_each_others_way(tmp_path: Path) -> None:
    template = "import pickle\nclass C: who = '{0}'\ndef f(t):\n    who = pickle.loads(pickle.dumps(C)).who\n"
    template += "    return t.set_column(6, 'key', [[who] * t.num_rows])\n"
    steps = []
    for name in ("a/json.py", "b/json.py", "b/penstock.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(template.format(name))
        steps.append(Python(PythonConfig(file=path, function="f")))
    for _ in range(2):
        keys = [step.apply(batch_of(b"{}")).kept.column("key").to_pylist() for step in steps]
        assert keys == [["a/json.py"], ["b/json.py"], ["b/penstock.py"]]
    assert sys.modules["json"] is json
    assert sys.modules["penstock"] is penstock


def test_a_file_that_was_changed_is_read_anew_by_a_new_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it has the size and time of the one before, as files of an image have that was built reproducibly."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "steps.py"
    for key in ("one", "two"):
        path.write_text(f"def f(t): return t.set_column(6, 'key', [['{key}'] * t.num_rows])\n")
        os.utime(path, (0, 0))
        assert run(path, "f", b"{}").kept.column("key").to_pylist() == [key]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nothing", "TypeError: the function returned NoneType, not a pyarrow.Table"),
        ("no_key", "TypeError: the function returned no column 'key'"),
        ("moved", "TypeError: the function returned a row with a partition, offset and item that it was not given"),
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


@pytest.mark.parametrize("error", ["OSError: no such model", "SystemExit: 1"])
def test_a_file_that_raises_itself_stops_the_route_and_says_why(tmp_path: Path, error: str) -> None:
    path = tmp_path / "steps.py"
    kind, text = error.split(": ")
    path.write_text(f"def f(t): return t\nraise {kind}('{text}')\n")
    step = Python(PythonConfig(file=path, function="f"))
    for _ in range(2):
        with pytest.raises(RouteError, match=error):
            step.apply(batch_of(b"{}"))


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


NUMBERS = ["12345678901234567.89", "99999999999999999999.999999999999999999", "1e-400", "1e400", "-0", "-0.0", "1.50",
           "1E2", "0.1", "7", "123456789012345678901234567890"]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS)
def test_in_pandas_too_a_number_that_it_leaves_alone_is_as_it_was_written(file: Path, number: str) -> None:
    document = f'{{"n":{number},"in":[{{"deep":{number}}}],"text":"{number}"}}'
    outcome = run(file, "seen", document.encode())
    assert outcome.kept.column("data").to_pylist() == [f'{document[:-1]},"seen":1}}'.encode()]


@given(
    st.lists(st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True), min_size=1)
)
def test_whatever_numbers_there_are_they_stay(numbers: list[str]) -> None:
    reader = JsonNumbers()
    documents = [f'{{"n":[{",".join(numbers)}]}}'.encode(), f'[{numbers[0]},{{"x":{numbers[-1]}}}]'.encode()]
    values = [copy.deepcopy(reader.read(document)) for document in documents]
    assert [reader.write(value) for value in values] == documents


def test_what_it_computes_is_a_number_of_python(file: Path) -> None:
    outcome = run(file, "doubled", b'{"n":1.50}', b'{"n":-0}', b'{"n":2}')
    assert outcome.kept.column("data").to_pylist() == [b'{"n":3.0}', b'{"n":-0.0}', b'{"n":4}']
