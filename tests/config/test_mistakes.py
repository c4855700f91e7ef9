"""Every mistake is reported with its place, its key and what to do; all of them at once; none with a secret in it."""

from __future__ import annotations

import json
import pickle
import traceback
from pathlib import Path

import pytest

from penstock.config.loading import load
from penstock.config.problems import ConfigError, Position

from .conftest import Read
from .mistakes import GOOD, MISTAKES, Mistake, with_route


def place_of_mark(text: str) -> Position:
    before = text[: text.index("▲")]
    return Position(before.count("\n") + 1, len(before) - before.rfind("\n"))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
def test_a_mistake_is_reported_with_place_key_and_fix(mistake: Mistake, read: Read) -> None:
    with pytest.raises(ConfigError) as caught:
        read(mistake.text.replace("▲", ""), {"WORD": "hush"})
    place = place_of_mark(mistake.text)
    at_place = [problem for problem in caught.value.problems if problem.position == place]
    assert at_place, str(caught.value)
    problem = at_place[0]
    assert problem.key == mistake.key
    line = str(problem)
    about = f"{mistake.key}: " if mistake.key else ""
    assert line.startswith(f"pipeline.yaml:{place.line}:{place.column}: {about}")
    assert mistake.what in line
    assert mistake.fix in line
    assert "hush" not in str(caught.value)
    assert "\n" not in line


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
def test_a_mistake_is_reported_once(mistake: Mistake, read: Read) -> None:
    with pytest.raises(ConfigError) as caught:
        read(mistake.text.replace("▲", ""), {"WORD": "hush"})
    assert len(caught.value.problems) == 1, str(caught.value)


def test_all_mistakes_of_a_file_come_at_once_in_the_order_of_its_lines(read: Read) -> None:
    text = (
        "name: Shop\n"
        "data_dri: ./data\n"
        "sources:\n"
        "  web: {type: htp}\n"
        "routes:\n"
        "  one: {from: [wbe], to: {type: stdout, colour: red}}\n"
        "  two:\n"
        "    from: [web]\n"
        "    to: {type: stdout}\n"
        "    max_records: ${MANY}\n"
        "  two: {}\n"
    )
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert [(p.position.line, p.key) for p in caught.value.problems if p.position] == [
        (1, "name"),
        (2, "data_dri"),
        (4, "sources.web.type"),
        (6, "routes.one.from[0]"),
        (6, "routes.one.to.colour"),
        (10, "routes.two.max_records"),
        (11, "routes.two"),
    ]
    assert str(caught.value).splitlines()[-1] == "PEN-CFG-001: 7 problems in pipeline.yaml."


def test_no_trace_of_our_own_or_of_the_parser_is_shown(read: Read) -> None:
    with pytest.raises(ConfigError) as caught:
        read("name: [\n")
    shown = "".join(traceback.format_exception_only(caught.value))
    assert "Traceback" not in shown
    assert "pydantic" not in shown
    assert caught.value.__cause__ is None


SECRETS = [
    "tokens: [{id: site, client_secret: [s3cret]}]",
    "tokens: [{id: site, client_secret: {value: s3cret}}]",
    "tokens: [{id: site, client_secrt: s3cret}]",
    "tokens: [{id: a, client_secret: s3cret}, {id: b, client_secret: s3cret}]",
    "tokens: s3cret",
    "tokens: [s3cret]",
    "tokens: [{id: site, client_secret: 935133}]",
]


@pytest.mark.parametrize("options", SECRETS)
def test_a_secret_is_never_repeated(options: str, read: Read) -> None:
    with pytest.raises(ConfigError) as caught:
        read(f"name: shop\nsources: {{web: {{type: http, {options}}}}}\n")
    assert "s3cret" not in str(caught.value)
    assert "935133" not in str(caught.value)


def test_the_password_of_a_ledger_is_never_repeated(read: Read) -> None:
    with pytest.raises(ConfigError) as caught:
        read(GOOD + "ledger: {url: mysql://user:s3cret@db/x}\n")
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(read(GOOD + "ledger: {url: postgresql://user:s3cret@db/x}\n"))


ADDRESSES = [
    "mysql://user:s3cret@db/x",
    "postgresql://user:s3/cret@db/x",
    "postgresql://user:s3@cret@db/x",
    "postgresql://user:s3%cret@db/x",
    "host=db password=s3 cret",
    "host=db password='s3cret",
    "host=db port=s3cret",
]


@pytest.mark.parametrize("key", ["url", "dsn"])
@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_that_cannot_be_read_is_refused_and_never_repeated(address: str, key: str, read: Read) -> None:
    text = with_route("", to=f"{{type: postgres, {key}: ▲{json.dumps(address)}}}")
    with pytest.raises(ConfigError, match=rf"routes\.out\.to\.{key}: not an? ") as caught:
        read(text.replace("▲", ""))
    assert [problem.position for problem in caught.value.problems] == [place_of_mark(text)]
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    "form", ["postgresql://me:s3cret@[::1]:1,b:2/x?sslmode=require", "host=/tmp port=5 password='a b'"]
)
def test_an_address_may_be_written_as_its_tools_take_it(form: str, read: Read) -> None:
    for key in ("url", "dsn"):
        config = read(with_route("", to=f"{{type: postgres, {key}: {json.dumps(form)}}}"))
        assert config.routes["out"].to.url.get_secret_value() == form  # type: ignore[attr-defined]
        assert form not in repr(config)


FILES = [
    ("missing", lambda path: None, "No such file"),
    ("a folder", lambda path: path.mkdir(), "Is a directory"),
    ("too large", lambda path: path.write_bytes(b"#" * (1 << 20) + b"#"), "larger than 1 MiB"),
    ("not UTF-8", lambda path: path.write_bytes(b"name: shop\nlog: caf\xe9\n"), "pipeline.yaml:2:9: not UTF-8"),
]


@pytest.mark.parametrize(("make", "what"), [f[1:] for f in FILES], ids=[f[0] for f in FILES])
def test_a_file_that_is_no_pipeline(make: object, what: str, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    assert callable(make)
    make(path)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert what in str(caught.value)
    assert str(path) in str(caught.value)


def test_aliases_that_multiply_are_refused_quickly(read: Read) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
    with pytest.raises(ConfigError, match="more than 100,000 values"):
        read(bomb)


def test_a_text_that_only_nests_is_refused(read: Read) -> None:
    with pytest.raises(ConfigError, match="more than 64 levels"):
        read("name: " + "[" * 300_000)


def test_the_error_survives_a_process_boundary(read: Read) -> None:
    with pytest.raises(ConfigError) as caught:
        read("name: Shop\n")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
