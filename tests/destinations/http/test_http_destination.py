"""Records to an API that takes anything: what every destination owes, and what only this one does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from penstock.config.secrets import secrets_in_options
from penstock.destinations.contract import AnyDestination, Batch, Receipt, TableBook, TableReceipt
from penstock.destinations.http.config import HttpConfig
from penstock.destinations.http.destination import HttpDestination
from penstock.errors import TransientError
from penstock.testing.destination import ReadableContract, Staging, batch, events
from tests.simulators.record_api import RecordApi, record_api


@pytest.fixture
def api() -> Iterator[RecordApi]:
    with record_api() as running:
        yield running


def make(api: RecordApi, path: str = "/events", **options: Any) -> HttpDestination:
    return HttpDestination(HttpConfig.model_validate({"url": api.url + path, **options}))


class TestHttp(ReadableContract):
    @pytest.fixture(autouse=True)
    def api(self) -> Iterator[RecordApi]:
        with record_api() as running:
            self._api = running
            yield running

    def make(self, tmp_path: Path) -> AnyDestination:
        return make(self._api, key="one")

    def ids(self, destination: AnyDestination) -> list[int]:
        return [record["id"] for record in self._api.records]


def deliver(destination: HttpDestination, folder: Path, *values: Any, number: int = 0) -> TableReceipt:
    staging = Staging(destination, folder / "stage")
    receipt: Receipt = destination.write(batch(number), staging.stage(events(*values)))
    return receipt.tables[0]


def waiting(receipt: TableReceipt) -> Sequence[str]:
    return [rows.reason for rows in receipt.waiting]


@pytest.mark.parametrize(
    ("options", "bodies"),
    [
        ({}, [b'[{"n": 0},{"n": 1},{"n": 2}]']),
        ({"form": "ndjson"}, [b'{"n": 0}\n{"n": 1}\n{"n": 2}\n']),
        ({"form": "single"}, [b'{"n": 0}', b'{"n": 1}', b'{"n": 2}']),
        ({"max_records": 2}, [b'[{"n": 0},{"n": 1}]', b'[{"n": 2}]']),
        ({"body": '{"x": {{ n }}}'}, [b'[{"x": 0},{"x": 1},{"x": 2}]']),
        ({"form": "single", "body": "n={{ n }}"}, [b"n=0", b"n=1", b"n=2"]),
        ({"compression": "gzip"}, [b'[{"n": 0},{"n": 1},{"n": 2}]']),
    ],
)
def test_records_stand_in_requests_as_asked(
    options: dict[str, Any], bodies: list[bytes], api: RecordApi, tmp_path: Path
) -> None:
    receipt = deliver(make(api, key="one", **options), tmp_path, *({"n": number} for number in range(3)))
    assert [each.body for each in api.taken] == bodies
    assert receipt.rows == 3


def test_address_and_headers_are_templates_and_values_are_encoded(api: RecordApi, tmp_path: Path) -> None:
    destination = make(
        api, "/users/{{ user.id }}?kind={{ kind }}", method="PUT",
        headers={"authorization": "Bearer secret-token"}, templated_headers={"X-Kind": "{{ kind }}"},
    )  # fmt: skip
    values = [{"user": {"id": "a/b ü"}, "kind": "x&y"}, {"user": {"id": 7}, "kind": "z\nSet-Cookie: 1"}]
    deliver(destination, tmp_path, *values)
    by_path = {each.path: each for each in api.taken}
    first = by_path["/users/a%2Fb%20%C3%BC?kind=x%26y"]
    assert (first.method, first.headers["x-kind"], first.headers["authorization"]) == (
        "PUT",
        "x&y",
        "Bearer secret-token",
    )
    assert by_path["/users/7?kind=z%0ASet-Cookie%3A%201"].headers["x-kind"] == "zSet-Cookie: 1"
    assert "Bearer secret-token" in list(secrets_in_options(destination.config))


def test_a_header_is_sent_once_in_whatever_case_it_is_written(api: RecordApi, tmp_path: Path) -> None:
    headers = {"content-type": "application/vnd.api+json", "USER-AGENT": "shop"}
    destination = make(api, key="one", headers=headers, templated_headers={"Content-Type": "text/{{ n }}"})
    deliver(destination, tmp_path, {"n": 1})
    (taken,) = api.taken
    assert [value for name, value in taken.all_headers if name == "content-type"] == ["text/1"]
    assert [value for name, value in taken.all_headers if name == "user-agent"] == ["shop"]


def test_a_record_whose_body_is_no_json_does_not_cost_the_others_their_request(api: RecordApi, tmp_path: Path) -> None:
    destination = make(api, key="one", body='{"name": "{{ name }}"}')
    staging = Staging(destination, tmp_path / "stage")
    parts = staging.stage(events({"name": "a"}, {"name": 'b"'}, {"name": "c"}))
    (failed,) = staging.outcomes[0].failures.to_pylist()
    assert (failed["code"], failed["offset"]) == ("bad_record", 1)
    assert "what the template of body makes of it is not JSON" in failed["message"]
    destination.write(batch(), parts)
    assert api.records == [{"name": "a"}, {"name": "c"}]


def test_a_date_in_retry_after_counts_from_the_clock_of_the_server(api: RecordApi, tmp_path: Path) -> None:
    hour_ahead = datetime.now(UTC) + timedelta(hours=1)
    api.date = format_datetime(hour_ahead, usegmt=True)
    api.retry_after = format_datetime(hour_ahead + timedelta(seconds=17), usegmt=True)
    api.decide = lambda path, number: (429, 0.0)
    receipt = deliver(make(api, key="one"), tmp_path, {"n": 1})
    assert receipt.waiting[0].due == pytest.approx(17, abs=1)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_certificates_that_cannot_be_read_are_named(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "ca.pem").write_text(content)
    options = {"url": "https://127.0.0.1:1/", "ca": str(tmp_path / "ca.pem")}
    destination = HttpDestination(HttpConfig.model_validate(options))
    with pytest.raises(TransientError, match=r"the certificates in .*ca\.pem cannot be read"):
        deliver(destination, tmp_path, {"n": 1})


def test_what_is_noted_of_refused_records_grows_with_them_and_not_with_their_square(
    api: RecordApi, tmp_path: Path
) -> None:
    class Book(TableBook):
        written = 0

        def note_progress(self, batch: Batch, progress: Mapping[str, str]) -> None:
            self.written += sum(map(len, progress.values()))

    api.decide = lambda path, number: (422, 0.0)
    destination, book = make(api, key="one", form="single"), Book()
    parts = Staging(destination, tmp_path / "stage").stage(events(*({"n": number} for number in range(300))))
    (receipt,) = destination.write(batch(), parts, book).tables
    assert receipt.failures is not None
    assert receipt.failures.num_rows == 300
    assert book.written < 300 * 200


def test_records_of_a_key_are_in_order_and_never_two_requests_at_a_time(api: RecordApi, tmp_path: Path) -> None:
    api.decide = lambda path, number: (200, 0.002)
    destination = make(api, "/{{ k }}", key="{{ k }}", max_records=3)
    deliver(destination, tmp_path, *({"k": f"k{number % 7}", "n": number} for number in range(210)))
    assert not api.overlaps
    for key in range(7):
        own = [record["n"] for each in api.taken if each.path == f"/k{key}" for record in each.records]
        assert own == list(range(key, 210, 7))


def test_more_requests_are_in_flight_while_answers_stay_fast(api: RecordApi, tmp_path: Path) -> None:
    api.decide = lambda path, number: (200, 0.01)
    destination = make(api, "/{{ k }}", key="{{ k }}", form="single", max_parallel_outgoing=16)
    deliver(destination, tmp_path, *({"k": number % 40} for number in range(600)))
    assert 4 < api.most_in_flight <= 16


@pytest.mark.parametrize("status", [401, 403, 404, 408, 429, 500, 503, 302])
def test_what_may_pass_waits_and_other_keys_do_not(status: int, api: RecordApi, tmp_path: Path) -> None:
    api.decide = lambda path, number: (status if path == "/bad" else 200, 0.0)
    receipt = deliver(make(api, "/{{ k }}", key="{{ k }}"), tmp_path, {"k": "bad"}, {"k": "good"}, {"k": "bad"})
    assert (receipt.rows, waiting(receipt)) == (1, [f"it answers {status}: said"])
    assert receipt.waiting[0].places.num_rows == 2


def test_what_is_refused_fails_and_its_key_goes_on(api: RecordApi, tmp_path: Path) -> None:
    api.decide = lambda path, number: (422 if number == 1 else 200, 0.0)
    destination = make(api, key="one", form="single")
    receipt = deliver(destination, tmp_path, *({"n": number} for number in range(3)))
    assert [record["n"] for record in api.records] == [0, 2]
    assert receipt.failures is not None
    assert receipt.failures.column("message").to_pylist() == ["it answers 422: said"]


def test_retry_after_is_obeyed(api: RecordApi, tmp_path: Path) -> None:
    api.retry_after, api.decide = "17", lambda path, number: (429, 0.0)
    receipt = deliver(make(api, key="one"), tmp_path, {"n": 1})
    assert receipt.waiting[0].due == pytest.approx(17, abs=1)


def test_what_cannot_be_sent_fails_before_anything_is(api: RecordApi, tmp_path: Path) -> None:
    destination = make(api, "/{{ a.b.c }}", max_bytes=100)
    staging = Staging(destination, tmp_path / "stage")
    good = json.dumps({"a": {"b": {"c": 1}}}).encode()
    large = json.dumps({"a": {"b": {"c": 1}}, "text": "x" * 200}).encode()
    staging.stage([good, b"[1]", b"no json", b"{}", large])
    failures = staging.outcomes[0].failures.column("code").to_pylist()
    assert failures == ["bad_record", "bad_record", "bad_record", "too_large"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "ftp://x"}, "not an address"),
        ({"url": "http://{{ host }}/"}, "the host is no template"),
        ({"url": "http://u:p@x/"}, "a password"),
        ({"url": "http://x/?n=1&api_key=k"}, "a secret, 'api_key'; write it in headers"),
        ({"url": "http://x/{{ a"}, "url: "),
        ({"url": "http://x/", "headers": {"host": "y"}}, "set by the destination itself"),
        ({"url": "http://x/", "templated_headers": {"a b": "y"}}, "no name of a header"),
        ({"url": "http://x/", "headers": {"a": "\n"}}, "characters that no header can have"),
        ({"url": "http://x/", "ca": "./ca.pem"}, "begins with https"),
        ({"url": "http://x/", "headers": {"A": "1", "a": "2"}}, "named twice"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        HttpConfig.model_validate(options)
