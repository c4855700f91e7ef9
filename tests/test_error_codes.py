"""An error's code is what people search for and scripts look at: it stands for one thing. And errors read well."""

from __future__ import annotations

import ast
import re
import runpy
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import PenstockError

PACKAGE = Path(__file__).parents[1] / "penstock"
PAGE = PACKAGE.parent / "docs" / "reference" / "errors.md"
CODE = re.compile(r"PEN-[A-Z]+-\d{3}")
NO_ADVICE = re.compile(
    r"(the batch|they|it) (is|are|was|will be) (not committed and is )?(tried|looked up) again"
    r"|nothing of it was \w+|the batch is not committed|[\s.;]",
    re.IGNORECASE,
)
"""What an error may say of itself, and does not tell anybody what to do."""
DATABASE_SAYS = {"PEN-DST-023", "PEN-DST-024", "PEN-PGS-015"}
"""Codes for whatever a database says: away, or no. Their words are the database's."""


def raised() -> Iterator[tuple[str, str, str]]:
    """Every code that is given to an error, its module, and the first words of what happened if they are there."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call):
                continue
            for code, what in zip(call.args, call.args[1:], strict=False):
                if isinstance(code, ast.Constant) and CODE.fullmatch(str(code.value)) and (words := _words(what)):
                    yield str(code.value), str(path.relative_to(PACKAGE)), " ".join(words.split()[:2])


def _words(what: ast.expr) -> str:
    if isinstance(what, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in what.values)
    return str(what.value) if isinstance(what, ast.Constant) else ""


def test_no_code_stands_for_two_things() -> None:
    meanings: dict[str, dict[str, str]] = defaultdict(dict)
    for code, module, words in raised():
        meanings[code].setdefault(words, module)
    assert len(meanings) > 90
    across = {code: found for code, found in meanings.items() if len(set(found.values())) > 1}
    assert {code: found for code, found in across.items() if code not in DATABASE_SAYS} == {}


def test_the_reference_lists_every_code_with_what_to_do() -> None:
    known = {code for path in PACKAGE.rglob("*.py") for code in CODE.findall(path.read_text())}
    _, *sections = PAGE.read_text().split("\n### ")
    assert {section.partition("\n")[0] for section in sections} == known
    meanings = runpy.run_path(str(PACKAGE.parent / "scripts" / "error_page.py"))["meanings_by_code"]()
    # The problems of a config are listed one by one, each with its fix.
    silent = [code for code, found in meanings.items() if not all(NO_ADVICE.sub("", each.fix) for each in found)]
    assert silent == ["PEN-CFG-001"]


@pytest.mark.parametrize(
    ("what", "fix", "line"),
    [
        ("Connection refused", "It is tried again.", "PEN-X-001: Connection refused. It is tried again."),
        ("the table is gone.", "Make it.", "PEN-X-001: the table is gone. Make it."),
        ("no such host\n", "Fix it.", "PEN-X-001: no such host. Fix it."),
        ("Connection refused", "", "PEN-X-001: Connection refused"),
    ],
)
def test_what_happened_and_what_to_do_are_two_sentences(what: str, fix: str, line: str) -> None:
    assert str(PenstockError("PEN-X-001", what, fix)) == line
