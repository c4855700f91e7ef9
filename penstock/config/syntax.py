"""The YAML parser's errors, in plain words and with the usual fix."""

from __future__ import annotations

import yaml

from penstock.config.problems import Position, Problem

_REMEDIES = {
    "mapping values are not allowed": "Quote a value that has ': ' in it, or check how far this line is indented.",
    "could not find expected ':'": "A key is followed by a colon and a space.",
    "did not find expected key": "Indent this line like its neighbours, or quote a value that begins like YAML.",
    "did not find expected '-' indicator": "Indent this line like the other items, and begin each with '- '.",
    "did not find expected ',' or '}'": "Close the mapping with }, or put a comma between its entries.",
    "did not find expected ',' or ']'": "Close the list with ], or put a comma between its items.",
    "found unexpected end of stream": "Close the quotes.",
    "found undefined alias": "A value that begins with * needs quotes, unless an anchor (&name) is meant.",
    "did not find expected alphabetic": "A value that begins with * or & needs quotes.",
    "but found another document": "Keep one document per file: remove the second '---'.",
    "found duplicate anchor": "Give each anchor (&name) its own name.",
    "found unknown escape character": "In double quotes a backslash is doubled; single quotes take it as it is.",
    "block sequence entries are not allowed": "Begin the list on a line of its own, below its key.",
}


def syntax_problem(error: yaml.YAMLError, text: str, file: str) -> Problem:
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position] if isinstance(error.position, int) else ""
        place = Position(before.count("\n") + 1, len(before) - before.rfind("\n"))
        return Problem(file, place, "", "a character that YAML does not allow", "Remove it, or escape it in quotes.")
    if not isinstance(error, yaml.MarkedYAMLError):
        return Problem(file, None, "", f"not valid YAML: {error}")
    complaint, context = error.problem or "it cannot be read", error.context or ""
    mark = error.problem_mark or error.context_mark
    if "end of stream" in complaint and error.context_mark:
        mark = error.context_mark
    position = Position(mark.line + 1, mark.column + 1) if mark else None
    what = f"not valid YAML: {complaint}" + (f" {context}" if context.startswith("while") else "")
    return Problem(file, position, "", what, _remedy(complaint, position, text))


def _remedy(complaint: str, position: Position | None, text: str) -> str:
    lines = text.splitlines()
    line = lines[position.line - 1] if position and position.line <= len(lines) else ""
    indent = line[: len(line) - len(line.lstrip())]
    if "\t" in indent:
        return "Indent with spaces: YAML does not allow tabs there."
    at = line[position.column - 1 : position.column] if position else ""
    if at and at in "@`%":
        return f"A value that begins with {at} needs quotes."
    if "${" in line and "expected ','" in complaint:
        return 'Inside { } and [ ] a variable needs quotes: "${NAME}".'
    return next((remedy for part, remedy in _REMEDIES.items() if part in complaint), "Check quotes and indentation.")
