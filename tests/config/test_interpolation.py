"""Variables in values: what is filled in, what is left, and what type comes out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.document import parse
from penstock.config.interpolation import InterpolationError, interpolate

VARIABLES = {"HOST": "db", "PORT": "5432", "EMPTY": "", "TRICKY": "a: [b] # ${HOST}"}

FILLED = [
    ("plain", "plain"),
    ("${HOST}", "db"),
    ("http://${HOST}:${PORT}/", "http://db:5432/"),
    ("${NOPE:-fallback}", "fallback"),
    ("${NOPE:-}", ""),
    ("${HOST:-fallback}", "db"),
    ("${EMPTY:-fallback}", "fallback"),
    ("${EMPTY}", ""),
    ("${NOPE:-a:-b}", "a:-b"),
    ("$${HOST}", "${HOST}"),
    ("$$${HOST}", "$${HOST}"),
    ("cost: $5, ^end$", "cost: $5, ^end$"),
    ("${TRICKY}", "a: [b] # ${HOST}"),
]


@pytest.mark.parametrize(("text", "filled"), FILLED)
def test_variables_are_filled_in(text: str, filled: str) -> None:
    assert interpolate(text, VARIABLES) == filled


@pytest.mark.parametrize("text", ["${NOPE}", "${}", "${HOST", "${a b}", "${HOST-x}", "${1}", "${HOST:x}"])
def test_what_cannot_be_filled_in_says_so(text: str) -> None:
    with pytest.raises(InterpolationError) as caught:
        interpolate(text, VARIABLES)
    assert "${" in caught.value.fix


@given(st.text().filter(lambda text: "${" not in text))
def test_a_text_without_variables_stays_as_it_is(text: str) -> None:
    assert interpolate(text, {}) == text


@given(st.text())
def test_a_value_is_never_read_as_a_variable_itself(value: str) -> None:
    assert interpolate("<${A}>", {"A": value}) == f"<{value}>"


TYPED = [
    ("${PORT}", 5432),
    ('"${PORT}"', "5432"),
    ("'${PORT}'", "5432"),
    ("${PORT}.5", 5432.5),
    ("${NOPE:-true}", True),
    ("${EMPTY}", None),
    ('"${EMPTY}"', ""),
    ("${TRICKY}", "a: [b] # ${HOST}"),
    ("|\n  ${PORT}\n", "5432\n"),
]


@pytest.mark.parametrize(("text", "value"), TYPED)
def test_a_plain_value_gets_its_type_after_filling_in_and_a_quoted_one_stays_text(text: str, value: object) -> None:
    document = parse(f"value: {text}", "pipeline.yaml", VARIABLES)
    assert document.root is not None
    assert document.root.value == {"value": value}
    assert type(document.root.entries["value"].value) is type(value)
