"""The page of error codes, taken from the source: every code, what it says happened, and what it says to do."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1] / "penstock"
CODE = re.compile(r"PEN-([A-Z]+)-\d{3}")
AREAS = {
    "BAK": "Backup and restore",
    "CFG": "Config",
    "CLI": "Command line",
    "DMO": "Demo",
    "DST": "Destinations",
    "ENG": "Engine",
    "FILE": "File source",
    "FLD": "Failed records",
    "HTTP": "HTTP source",
    "LGR": "Ledger",
    "LOG": "Log",
    "PGS": "PostgreSQL source",
    "RTE": "Routes",
    "STP": "Steps",
}
SOMETHING = "…"
"""Stands where the message has a name or a number."""


class Meaning(NamedTuple):
    what: str
    fix: str


def error_page() -> str:
    lines = ["# Error codes\n"]
    lines.append(
        f"A code keeps its meaning. `{SOMETHING}` stands for a name, a number, or what another program said.\n"
    )
    by_area: dict[str, list[str]] = defaultdict(list)
    for code, meanings in sorted(meanings_by_code().items()):
        area = CODE.fullmatch(code)
        assert area is not None
        by_area[area[1]].append(f"### {code}\n")
        by_area[area[1]] += [f"{_ended(meaning.what)} {meaning.fix}".strip() + "\n" for meaning in meanings]
    for area in sorted(by_area, key=lambda area: AREAS[area]):
        lines += [f"## {AREAS[area]}\n", *by_area[area]]
    return "\n".join(lines)


def meanings_by_code() -> dict[str, list[Meaning]]:
    """What each code says wherever it is given to an error, once each, in the order of the modules."""
    found: dict[str, list[Meaning]] = defaultdict(list)
    trees = [ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))]
    constants = {name: text for tree in trees for name, text in _named_texts(tree.body).items()}
    for tree in trees:
        for code, meaning in _given(tree, constants):
            if meaning not in found[code]:
                found[code].append(meaning)
    return {code: [each for each in meanings if each.what != SOMETHING] or meanings for code, meanings in found.items()}


def _given(tree: ast.Module, constants: Mapping[str, str]) -> Iterator[tuple[str, Meaning]]:
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names = {**constants, **_named_texts(tree.body), **_named_texts(ast.walk(function))}
        for call in ast.walk(function):
            if not isinstance(call, ast.Call):
                continue
            for place, argument in enumerate(call.args):
                if isinstance(argument, ast.Constant) and CODE.fullmatch(str(argument.value)):
                    texts = [_text(each, names) for each in call.args[place + 1 : place + 3]]
                    what, fix = [*texts, "", ""][:2]
                    yield str(argument.value), Meaning(what or SOMETHING, fix)


def _named_texts(nodes: Iterable[ast.AST]) -> dict[str, str]:
    return {
        node.targets[0].id: _text(node.value, {})
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def _text(expression: ast.expr, names: Mapping[str, str]) -> str:
    match expression:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return names.get(name, SOMETHING)
        case ast.JoinedStr(values=parts):
            return "".join(_text(part, names) if isinstance(part, ast.Constant) else SOMETHING for part in parts)
        case ast.IfExp(body=body):
            return _text(body, names)
    return SOMETHING


def _ended(text: str) -> str:
    return text if text.endswith((".", "!", "?", ":", SOMETHING)) else f"{text}."
