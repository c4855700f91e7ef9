"""NDJSON as the file of a form."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.record import Header
from penstock.sources.http.body.body_events import BadBody
from penstock.sources.http.body.multipart import FileField, is_form
from penstock.testing.source import numbers
from tests.sources.http.server import CLIENT, Running, collector

TYPE = "multipart/form-data; boundary=frontier"
BULK = "/api/v1/events/bulk"


def part(name: str, content: bytes, more: str = "") -> bytes:
    return f'--frontier\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + content + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--frontier--\r\n"


def content(body: bytes, size: int = 10**6, content_type: str = TYPE) -> bytes:
    field = FileField(content_type)
    for start in range(0, len(body), size):
        field.write(body[start : start + size])
    return field.content()


@given(st.binary(max_size=200).filter(lambda data: b"--frontier" not in data), st.integers(1, 50))
def test_a_file_comes_out_as_it_went_in_however_it_is_cut(data: bytes, size: int) -> None:
    body = form(part("other", b"x"), part("file", data, '; filename="a.ndjson"'), part("more", b"y"))
    assert content(body, size) == data


def test_several_files_are_read_in_turn() -> None:
    body = form(part("file", b"\xef\xbb\xbf1\n2"), part("file", b"\xef\xbb\xbf3\r\n"), part("file", b"4"))
    assert content(body) == b"1\n2\n3\r\n4"


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [
        (form(part("other", b"{}")), TYPE, "no_file"),
        (form(), TYPE, "no_file"),
        (part("file", b"{}"), TYPE, "damaged_form"),
        (part("file", b"{}") + b"--front", TYPE, "damaged_form"),
        (b"{}", TYPE, "damaged_form"),
        (b"", TYPE, "damaged_form"),
        (form(part("file", b"{}")), "multipart/form-data", "damaged_form"),
        (form(part("file", b"{}")), "multipart/form-data; boundary=", "damaged_form"),
        (form(part("file", b"{}")), "multipart/form-data; boundary=" + "b" * 500, "damaged_form"),
        (form(part("file", b"{}")), "multipart/form-data; boundary=elsewhere", "damaged_form"),
        (b"--frontier\r\nbad header\r\n\r\nx\r\n--frontier--\r\n", TYPE, "damaged_form"),
    ],
)
def test_a_form_that_cannot_be_read_is_refused(body: bytes, content_type: str, code: str) -> None:
    with pytest.raises(BadBody) as caught:
        content(body, content_type=content_type)
    assert (caught.value.status, caught.value.code) == (400, code)


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        (TYPE, True),
        ("Multipart/Form-Data", True),
        ("application/json", False),
        ("text/plain; multipart/form-data", False),
    ],
)
def test_forms_are_known_by_their_type(content_type: str, expected: bool) -> None:
    assert is_form(content_type) is expected


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with collector(tmp_path_factory.mktemp("forms"), limits={"body_bytes": 300_000}) as running:
        yield running


def test_a_file_is_taken_line_by_line(web: Running) -> None:
    before = web.tail()
    files = {"file": ("events.ndjson", b'{"n":1}\n {"n": \r\n{"n":2}')}
    answer = web.http.post(web.url + BULK, files=files, data={"comment": "x"}, headers=CLIENT)
    assert answer.json() == {"status": "ok", "accepted": 2, "malformed": 1}
    taken = web.since(before)
    assert numbers(taken) == [1, 2]
    assert [r.data for r in taken if Header.MALFORMED in r.headers] == [b' {"n": ']


def test_a_packed_form_of_many_lines(web: Running) -> None:
    before = web.tail()
    body = form(part("file", b"\n".join(b'{"n":%d}' % n for n in range(20_000))))
    headers = {**CLIENT, "Content-Type": TYPE, "Content-Encoding": "gzip"}
    assert web.post(BULK, gzip.compress(body), headers).json()["accepted"] == 20_000
    assert numbers(web.since(before)) == list(range(20_000))


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (form(part("file", b"")), TYPE, 400),
        (form(part("file", b"\r\n \n")), TYPE, 400),
        (part("file", b"{}\n"), TYPE, 400),
        (b"", TYPE, 400),
        (b"", "application/x-ndjson", 400),
        (b"\r\n" * 5, "application/x-ndjson", 400),
        (form(part("file", b"x" * 300_000)), TYPE, 413),
    ],
)
def test_a_bulk_body_without_events_is_refused(web: Running, body: bytes, content_type: str, status: int) -> None:
    before = web.tail()
    answer = web.post(BULK, body, {**CLIENT, "Content-Type": content_type})
    assert (answer.status_code, answer.json()["status"]) == (status, "error")
    assert web.since(before) == []
