"""Extracts the ``file`` fields of a multipart form from a body, piece by piece.

A form with several files gives their contents one after the other, each ending its last line. Other fields are
skipped. The form must be complete: one that ends early is refused, however much of a file was in it.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from penstock.sources.http.body.body_events import BadBody
from penstock.sources.json_text import BOM

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

FORM = "multipart/form-data"
FIELD = b"file"
MAX_HEAD_BYTES = 262_144
"""The limit for the headers of all parts. They are read byte by byte, unlike content."""
PART_BYTES = 64
"""What a part without headers counts as."""
PIECE_BYTES = 65_536


class FileField:
    """Reads one form: ``write`` its pieces, then take the ``content``."""

    def __init__(self, content_type: str) -> None:
        _, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if not boundary:
            raise _damaged("the Content-Type names no boundary")
        callbacks: MultipartCallbacks = {
            "on_part_begin": self._part_begins,
            "on_header_begin": self._header_begins,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._part_data,
            "on_end": self._form_ends,
        }
        try:
            self._parser = MultipartParser(boundary, callbacks)
        except FormParserError as error:
            raise _damaged(str(error)) from None
        self._files: list[bytearray] = []
        self._name = b""
        self._value = b""
        self._disposition = b""
        self._wanted = False
        self._complete = False
        self._head_bytes = 0

    def write(self, piece: bytes) -> None:
        try:
            self._parser.write(piece)
        except FormParserError as error:
            raise _damaged(str(error)) from None

    def content(self) -> bytes:
        """What the files hold together."""
        if not self._complete:
            raise _damaged("its end is missing")
        if not self._files:
            raise BadBody(HTTPStatus.BAD_REQUEST, "no_file", "the form has no field 'file'")
        if len(self._files) == 1:
            return bytes(self._files[0])
        return b"\n".join(bytes(file.removeprefix(BOM)).removesuffix(b"\n") for file in self._files)

    def _charge(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            message = f"the heads of the form's parts have more than {MAX_HEAD_BYTES} bytes; nothing was stored"
            raise BadBody(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body_too_large", message)

    def _part_begins(self) -> None:
        self._charge(PART_BYTES)
        self._disposition = b""

    def _header_begins(self) -> None:
        self._name = self._value = b""

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._charge(end - start)
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._charge(end - start)
        self._value += data[start:end]
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value

    def _headers_end(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._wanted = options.get(b"name") == FIELD
        if self._wanted:
            self._files.append(bytearray())

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._wanted:
            self._files[-1] += data[start:end]

    def _form_ends(self) -> None:
        self._complete = True


def file_of_form(content_type: str, body: bytes) -> bytes:
    """What the files of a form hold together; or ``BadBody``."""
    form = FileField(content_type)
    for start in range(0, len(body), PIECE_BYTES):
        form.write(body[start : start + PIECE_BYTES])
    return form.content()


def is_form(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == FORM


def _damaged(what: str) -> BadBody:
    return BadBody(HTTPStatus.BAD_REQUEST, "damaged_form", f"the multipart form cannot be read: {what}")
