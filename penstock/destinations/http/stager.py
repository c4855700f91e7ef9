"""Stages records by key, with the address that each goes to. What has none fails here, before anything is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import numpy as np
import orjson
import pyarrow as pa

from penstock.destinations.contract import Part, Stager
from penstock.destinations.http.config import Form, HttpConfig
from penstock.destinations.sending.staged.keyed_row_file import KeyedRow, KeyedRowFile
from penstock.destinations.sending.verbatim_json import has_long_numbers, loads
from penstock.destinations.sql.stage.template import EventTemplate
from penstock.outcome import PLACE_COLUMNS, Outcome, failure_batch

TABLE = "records"
BAD_RECORD, TOO_LARGE = "bad_record", "too_large"
ROWS_AT_ONCE = 256
"""So many are taken out of Arrow together."""
_OF_ADDRESSES = "!#$%&'()*+,/:;=?@[]~"
"""Characters that mean something in an address."""
_CONTROL = dict.fromkeys((*range(32), 127))


class BrokenRule(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class RecordStager(Stager):
    def __init__(self, directory: Path, config: HttpConfig) -> None:
        self._config = config
        self._separator = separator_of(config.form)
        self._file = KeyedRowFile(directory, TABLE)

    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None = None) -> Outcome:
        kept = np.zeros(batch.num_rows, bool)
        failures: list[tuple[int, int, int, str, str]] = []
        # Record by record: templates are.
        for row, (place, data) in enumerate(_rows(batch)):
            if not data:
                continue
            try:
                self._file.add(self._keyed(place, data))
            except BrokenRule as broken:
                failures.append((*place, broken.code, broken.message))
                continue
            kept[row] = True
        skipped = batch.num_rows - int(kept.sum()) - len(failures)
        return Outcome(batch if kept.all() else batch.filter(pa.array(kept)), skipped, failure_batch(failures))

    def finish(self) -> list[Part]:
        return self._file.finish()

    def _keyed(self, place: tuple[int, int, int], data: bytes) -> KeyedRow:
        config = self._config
        record = _read(data)
        url = self._address(record)
        headers = {
            name: self._render(name, text, record).translate(_CONTROL)
            for name, text in config.templated_headers.items()
        }
        about = orjson.dumps({"url": url, "headers": headers})
        share = place[1] + place[2]
        own = (
            str(share % config.max_parallel_outgoing) if config.key is None else self._render("key", config.key, record)
        )
        key = hashlib.sha256(b"\0".join([about, own.encode()])).hexdigest()[:32]
        body = data if config.body is None else self._render("body", config.body, record).encode()
        if config.form is Form.JSON and config.body is not None:
            # One that is no JSON would cost all others their request.
            _check_json(body)
        if config.form is not Form.SINGLE:
            # No text of JSON has a line break, so what has one stands between them.
            body = body.replace(b"\r", b" ").replace(b"\n", b" ")
        if len(body) + 2 > config.max_bytes:
            raise BrokenRule(TOO_LARGE, f"it has {len(body)} bytes, and a request at most {config.max_bytes}")
        return KeyedRow(place, key, about, body + self._separator)

    def _address(self, record: Mapping[str, object]) -> str:
        text = self._config.url
        for path in self._templates[text].needed if "{" in text else ():
            if _at(record, path) in (None, ""):
                raise BrokenRule(BAD_RECORD, f"it has no {'.'.join(path)}, which its address is made of")
        return quote(self._render("url", text, _encoded(record)), safe=_OF_ADDRESSES)

    def _render(self, what: str, text: str, record: Mapping[str, object]) -> str:
        if "{" not in text:
            return text
        try:
            return self._templates[text].render(record)
        except Exception as error:  # whatever a template raises is caused by this record's values
            raise BrokenRule(BAD_RECORD, f"the template of {what} failed: {str(error)[:200]}") from error

    @cached_property
    def _templates(self) -> Mapping[str, EventTemplate]:
        return {text: EventTemplate(text) for text in self._config.templates().values()}


def separator_of(form: Form) -> bytes:
    return b"\n" if form is Form.NDJSON else b","


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[tuple[int, int, int], bytes | None]]:
    for start in range(0, batch.num_rows, ROWS_AT_ONCE):
        some = batch.slice(start, ROWS_AT_ONCE)
        places = zip(*(some.column(name).to_pylist() for name in PLACE_COLUMNS), strict=True)
        yield from zip(places, some.column("data").to_pylist(), strict=True)


def _read(data: bytes) -> dict[str, object]:
    try:
        record = orjson.loads(data)
        if has_long_numbers(data):
            record = loads(data)
    except (ValueError, RecursionError) as error:
        raise BrokenRule(BAD_RECORD, f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise BrokenRule(BAD_RECORD, "it is not a JSON object")
    return record


def _check_json(body: bytes) -> None:
    try:
        orjson.loads(body)
    except ValueError as error:
        raise BrokenRule(BAD_RECORD, f"what the template of body makes of it is not JSON: {error}") from None


def _at(value: object, path: Sequence[str]) -> object:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _encoded(value: object) -> dict[str, object]:
    """The record with its texts as they may stand in an address."""
    found = _percent_encoded(value)
    assert isinstance(found, dict), "a record is an object"
    return found


def _percent_encoded(value: object) -> object:
    if isinstance(value, str):
        return quote(value, safe="")
    if isinstance(value, dict):
        return {name: _percent_encoded(inner) for name, inner in value.items()}
    return [_percent_encoded(inner) for inner in value] if isinstance(value, list) else value
