"""What is wrong with a document that is not one JSON object: a stable code and a message for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.json.containers import skip_value
from penstock.json.documents import Documents
from penstock.json.tokens import Kind, document_start, skip_whitespace, value_kind


class ProblemCode(StrEnum):
    NO_DOCUMENT = "no_document"
    """The record has no data, or only whitespace."""
    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"


@dataclass(frozen=True)
class Problem:
    """``record`` is its index in the array, ``position`` counts bytes from the document's first."""

    record: int
    code: ProblemCode
    message: str
    position: int


def problem(documents: Documents, record: int, broken_at: int) -> Problem:
    """Explain a record that a scanner refused at ``broken_at`` (a position in the buffer; -1 for a null)."""
    if not documents.valid[record]:
        return Problem(record, ProblemCode.NO_DOCUMENT, "the record has no data", 0)
    buffer, first, end = documents.buffer, int(documents.offsets[record]), int(documents.offsets[record + 1])
    start = document_start(buffer, first, end)
    if start == end:
        return Problem(record, ProblemCode.NO_DOCUMENT, "the document is empty", start - first)
    stop = skip_value(buffer, start, end)
    if stop >= 0 and skip_whitespace(buffer, stop, end) == end:
        kind = Kind(value_kind(buffer, start, stop)).name.lower()
        message = f"an event is a JSON object, this is {_ARTICLE_AND_NAME.get(kind, kind)}"
        return Problem(record, ProblemCode.NOT_AN_OBJECT, message, start - first)
    position = broken_at - first
    if broken_at >= end:
        message = f"the JSON breaks off at byte {position}"
    else:
        around = bytes(buffer[max(first, broken_at - 10) : min(end, broken_at + 10)])
        message = f"invalid JSON at byte {position}, near {around.decode('utf-8', 'backslashreplace')!r}"
    return Problem(record, ProblemCode.NOT_JSON, message, position)


_ARTICLE_AND_NAME = {
    "int": "a number",
    "float": "a number",
    "string": "a string",
    "array": "an array",
}
