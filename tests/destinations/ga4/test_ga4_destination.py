"""Events at a Google Analytics that takes only what the real one keeps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.destinations.contract import AnyDestination, Receipt
from penstock.destinations.ga4.config import Ga4Config
from penstock.destinations.ga4.destination import Ga4Destination
from penstock.destinations.ga4.event_mapping import BrokenRule, Mapper
from penstock.destinations.ga4.requests import requests
from penstock.destinations.ga4.server_clock import ServerClock
from penstock.destinations.ga4.staged_events import Staged
from penstock.errors import RefusedError, TransientError
from penstock.items import number_items
from penstock.log.local_log import LocalLog
from penstock.log.record_ids import RecordIds
from penstock.record import Record, entries, placed
from penstock.testing.destination import ReadableContract, Staging, batch, delivered_rows
from tests.destinations.ga4.simulator import SECRET, STREAM, GoogleAnalytics, google_analytics, problem, read
from tests.support.ports import free_port

NOW = datetime.now(UTC)


def config(**options: Any) -> Ga4Config:
    basic = {"measurement_id": STREAM, "api_secret": SECRET, "client_id": "/cid", "event_name": "{{ type }}"}
    return Ga4Config.model_validate({**basic, **options})


@pytest.fixture
def analytics() -> Iterator[GoogleAnalytics]:
    with google_analytics() as service:
        yield service
        assert service.dropped == []


def deliver(
    destination: Ga4Destination, folder: Path, *events: dict[str, Any], number: int = 0, whole: bool = False
) -> Receipt:
    parts = Staging(destination, folder / "stage").stage([json.dumps(event).encode() for event in events])
    return destination.write_all_or_nothing(batch(number), parts) if whole else destination.write(batch(number), parts)


def click(client: str = "c1", **fields: Any) -> dict[str, Any]:
    return {"type": "click", "cid": client, **fields}


class TestGa4(ReadableContract):
    @pytest.fixture(autouse=True)
    def _service(self, analytics: GoogleAnalytics) -> None:
        self.analytics = analytics

    def make(self, tmp_path: Path) -> Ga4Destination:
        options = {"client_id": None, "user_id": "/id", "event_name": "seen", "params": ["/id"]}
        return Ga4Destination(config(endpoint=self.analytics.endpoint, **options))

    def ids(self, destination: AnyDestination) -> list[int]:
        return [event["params"]["id"] for event in self.analytics.events]

    def large_event(self, number: int) -> Any:
        """Of a few users: each request is of one."""
        return {"id": number % 10, "text": f"{number:04000d}"}

    def test_a_large_batch_does_not_take_memory_with_it(self, destination: AnyDestination, staging: Staging) -> None:
        super().test_a_large_batch_does_not_take_memory_with_it(destination, staging)
        assert len(self.analytics.requests) < 1_100


def test_a_record_becomes_an_event_with_its_fields_as_parameters(analytics: GoogleAnalytics, tmp_path: Path) -> None:
    destination = Ga4Destination(
        config(endpoint=analytics.endpoint, user_id="/user/id", user_properties={"plan": "/user/plan"})
    )
    sent = {
        "type": "purchase", "cid": "c1", "_timestamp": NOW.isoformat(), "source_ip": "10.0.0.1", "api_key": "site",
        "user": {"id": 7, "plan": "pro", "big spender": True}, "value": 12.5, "tags": ["a", 1], "nothing": None,
        "items": [{"item_id": "mug", "price": 3}], "eventn_ctx": {"event_id": "x"}, "src": "api",
    }  # fmt: skip
    deliver(destination, tmp_path, sent)
    (event,) = analytics.events
    assert event == {
        "client_id": "c1", "user_id": "7", "user_properties": {"plan": {"value": "pro"}}, "name": "purchase",
        "timestamp_micros": int(NOW.timestamp() * 1_000_000),
        "params": {"type": "purchase", "user_big_spender": "true", "value": 12.5, "tags": '["a",1]',
                   "items": [{"item_id": "mug", "price": 3}], "penstock_id": "0-0"},
    }  # fmt: skip


def test_events_of_one_client_share_requests_in_their_order(analytics: GoogleAnalytics, tmp_path: Path) -> None:
    events = [click(f"c{number % 3}", n=number) for number in range(120)]
    deliver(Ga4Destination(config(endpoint=analytics.endpoint)), tmp_path, *events)
    assert [len(request["events"]) for request in analytics.requests] == [25, 15] * 3
    for client in ("c0", "c1", "c2"):
        own = [event["params"]["n"] for event in analytics.events if event["client_id"] == client]
        assert own == [event["n"] for event in events if event["cid"] == client]


def test_the_last_value_of_a_user_property_is_sent_last(analytics: GoogleAnalytics, tmp_path: Path) -> None:
    destination = Ga4Destination(
        config(endpoint=analytics.endpoint, user_id="/uid", user_properties={"plan": "/plan"}, params=["/n"])
    )
    changes = [("c1", "u1", "free"), ("c1", "u1", "pro"), ("c2", "u1", "free"), ("c1", "u1", "free"), ("c3", "u3", "x"),
               ("c1", None, "none"), ("c1", "u1", "pro"), ("c3", "u3", "x"), ("c2", "u1", "gold")]  # fmt: skip
    deliver(destination, tmp_path, *(
        click(client, uid=user, plan=plan, n=n) for n, (client, user, plan) in enumerate(changes)
    ))  # fmt: skip
    for whose in ("client_id", "user_id"):
        for name in {event[whose] for event in analytics.events if event[whose]}:
            own = [event["params"]["n"] for event in analytics.events if event[whose] == name]
            assert own == sorted(own), name
    assert len(analytics.requests) == 8, "the two of c3 share a request"


NUMBERS = [
    "1234567890.1678901230", "2017346517.1717171717", "12345678901234567.0", "12345678901234567.89", "1.50", "1E5",
    "12345678901234567890123", "0.10000000000000001", "-0", "-0.0", "1e-400", "7" * 99,
]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_sent_with_the_digits_that_it_came_with(
    number: str, analytics: GoogleAnalytics, tmp_path: Path
) -> None:
    short = number if len(number) <= 36 else "1"
    destination = Ga4Destination(
        config(endpoint=analytics.endpoint, user_id="/uid", event_name="e", user_properties={"plan": "/plan"})
    )
    event = (
        f'{{"cid":{number},"uid":{number},"value":{number},"list":[{short}],"plan":{short},"items":[{{"p":{number}}}]}}'
    )
    destination.write(batch(), Staging(destination, tmp_path / "stage").stage([event.encode()]))
    (sent,) = [json.loads(raw, parse_float=str, parse_int=str) for raw in analytics.bodies]
    assert (sent["client_id"], sent["user_id"]) == (number, number)
    assert sent["user_properties"] == {"plan": {"value": short}}
    params = sent["events"][0]["params"]
    assert (params["value"], params["list"], params["items"]) == (number, f"[{short}]", [{"p": number}])


@given(st.from_regex(r"-?(0|[1-9][0-9]{0,39})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?", fullmatch=True))
def test_no_number_is_sent_as_another_one(number: str) -> None:
    mapper = Mapper(config(event_name="e"))
    event = mapper.event(f'{{"cid":{number},"value":{number}}}'.encode(), NOW)
    assert event is not None
    (request,) = requests([Staged(0, 0, 0, 0, event)])
    sent = json.loads(request.body, parse_float=str, parse_int=str)
    assert (sent["client_id"], sent["events"][0]["params"]["value"]) == (number, number)


BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("event_name", {"type": "9lives"}),
    ("event_name", {"type": "größe"}),
    ("event_name", {"type": "x" * 41}),
    ("event_name", {"type": "session_start"}),
    ("event_name", {"type": "ga_click"}),
    ("event_name", {"type": {"no": "name"}}),
    ("client_id", {"cid": ""}),
    ("client_id", {"cid": None}),
    ("client_id", {"cid": [1]}),
    ("params", {f"p{number}": number for number in range(25)}),
    ("param_name", {"_own": 1}),
    ("param_name", {"google_x": 1}),
    ("param_name", {"1st": 1}),
    ("param_name", {"": 1}),
    ("param_name", {"n" * 41: 1}),
    ("param_name", {"a b": 1, "a-b": 2}),
    ("param_value", {"text": "x" * 101}),
    ("param_value", {"page_location": "x" * 1001}),
    ("param_value", {"list": ["x" * 60, "y" * 60]}),
    ("items", {"items": [{}] * 201}),
    ("items", {"items": [{f"p{number}": 1 for number in range(28)}]}),
    ("param_value", {"items": [{"item_id": "x" * 101}]}),
    ("param_value", {"items": [{"nested": {"a": "x" * 100}}]}),
    ("param_name", {"items": [{"_bad name": 1}]}),
    ("param_name", {"items": [{"x" * 41: 1}]}),
    ("param_name", {"items": [{"a b": 1, "a-b": 2}]}),
    ("in_future", {"_timestamp": "2090-01-01T00:00:00Z"}),
    ("in_future", {"_timestamp": (NOW + timedelta(hours=2)).isoformat()}),
    ("timestamp", {"_timestamp": "yesterday"}),
    ("body", {"items": [{f"p{number}": "x" * 100 for number in range(10)}] * 140}),
    ("too_old", {"_timestamp": (NOW - timedelta(hours=73)).isoformat()}),
]


@pytest.mark.parametrize(
    ("code", "fields"), BROKEN, ids=[f"{code}-{number}" for number, (code, _) in enumerate(BROKEN)]
)
def test_a_record_that_breaks_a_rule_fails_alone_with_the_rule_as_its_code(
    code: str, fields: dict[str, Any], analytics: GoogleAnalytics, tmp_path: Path
) -> None:
    assert_fails_alone(code, json.dumps(click(**fields)), analytics, tmp_path)


DEEP = "[" * 900 + "]" * 900
HALF = '"\\ud800"'
HUGE = "7" * 400
UNREADABLE = {
    "a number beyond a double": ("number", '"x": 1e400'),
    "an integer beyond a double": ("number", f'"x": -{HUGE}'),
    "a number in a list": ("number", '"x": [1, 1e400]'),
    "a number of an item": ("number", f'"items": [{{"p": {HUGE}}}]'),
    "a number as an id": ("number", '"cid": 1e400'),
    "a long number": ("param_value", f'"x": {"7" * 101}'),
    "a number as long as a double is large": ("param_value", f'"x": {"7" * 305}'),
    "half a character": ("text", f'"x": {HALF}'),
    "half a character in a list": ("text", f'"x": [{HALF}]'),
    "half a character of an item": ("text", f'"items": [{{"p": {HALF}}}]'),
    "half a character as an id": ("text", f'"cid": {HALF}'),
    "half a character as a name": ("event_name", f'"type": {HALF}'),
    "a deep list": ("depth", f'"x": {DEEP}'),
    "a deep object": ("depth", '"x": ' + '{"a":' * 900 + "1" + "}" * 900),
    "a deep item": ("depth", f'"items": [{{"p": {DEEP}}}]'),
    "our own parameter": ("param_name", '"penstock_id": 1'),
}


@pytest.mark.parametrize(("code", "field"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_value_that_would_spoil_its_request_fails_alone(
    code: str, field: str, analytics: GoogleAnalytics, tmp_path: Path
) -> None:
    assert_fails_alone(code, json.dumps(click())[:-1] + f", {field}}}", analytics, tmp_path)


def assert_fails_alone(code: str, event: str, analytics: GoogleAnalytics, tmp_path: Path) -> None:
    destination = Ga4Destination(config(endpoint=analytics.endpoint))
    staging = Staging(destination, tmp_path / "stage")
    good = json.dumps(click()).encode()
    receipt = destination.write(batch(), staging.stage([good, event.encode(), good]))
    failures = [*receipt.failures, *(outcome.failures for outcome in staging.outcomes if outcome.failures.num_rows)]
    assert [(rows.column("offset").to_pylist(), rows.column("code").to_pylist()) for rows in failures] == [
        ([1], [code])
    ]
    assert len(analytics.events) == 2


def test_what_is_no_object_fails_and_what_has_no_name_is_skipped(analytics: GoogleAnalytics, tmp_path: Path) -> None:
    staging = Staging(Ga4Destination(config(endpoint=analytics.endpoint)), tmp_path / "stage")
    staging.stage([b"nonsense", b"[1]", b'{"a": NaN}', b'{"cid": "c1"}', b'{"cid": "c1", "type": " "}'])
    (outcome,) = staging.outcomes
    assert outcome.failures.column("code").to_pylist() == ["not_json"] * 3
    assert outcome.skipped == 2


def test_rules_stand_at_their_edges(analytics: GoogleAnalytics, tmp_path: Path) -> None:
    fields = {f"p{number}": "x" * 100 for number in range(20)}
    edge = click(
        **fields, page_location="x" * 1_000, page_title="x" * 300, _timestamp=(NOW - timedelta(hours=71)).isoformat()
    )
    del edge["p19"]
    own = {f"p{number}": "x" * 100 for number in range(27)}
    edge["items"] = [{**own, "item_id": "mug", "price": 3.5, "sold": True, "of": {"a": [1]}, "no": None}] * 20
    del edge["items"][0]["p26"], edge["items"][0]["p25"]
    receipt = deliver(Ga4Destination(config(endpoint=analytics.endpoint)), tmp_path, {**edge, "type": "x" * 40})
    assert (receipt.rows, len(receipt.failures), len(analytics.events)) == (1, 0, 1)


def test_an_event_of_just_now_keeps_its_time(analytics: GoogleAnalytics, tmp_path: Path) -> None:
    times = [datetime.now(UTC) for _ in range(20)]
    events = [click(_timestamp=time.isoformat()) for time in times]
    deliver(Ga4Destination(config(endpoint=analytics.endpoint)), tmp_path, *events)
    sent = [event["timestamp_micros"] for event in analytics.events]
    assert sent == [(time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) for time in times]


def test_what_is_dated_a_little_ahead_counts_as_of_now(analytics: GoogleAnalytics, tmp_path: Path) -> None:
    event = click(_timestamp=(datetime.now(UTC) + timedelta(minutes=4)).isoformat())
    assert deliver(Ga4Destination(config(endpoint=analytics.endpoint)), tmp_path, event).rows == 1
    assert analytics.events[0]["timestamp_micros"] <= datetime.now(UTC).timestamp() * 1_000_000


@pytest.mark.parametrize("whole", [False, True])
def test_a_clock_that_is_days_ahead_fails_nothing(analytics: GoogleAnalytics, tmp_path: Path, whole: bool) -> None:
    """The events came before somebody set it. Google's clock, which counts, is four days behind ours."""
    analytics.ahead = -4 * 24 * 3600.0
    then = (datetime.now(UTC) - timedelta(days=4, hours=1)).isoformat()
    destination = Ga4Destination(config(endpoint=analytics.endpoint))
    receipt = deliver(destination, tmp_path, click(_timestamp=then), whole=whole)
    assert (receipt.rows, len(receipt.failures), len(analytics.events)) == (1, 0, 1)


def test_an_endpoint_without_a_validation_server_takes_events(analytics: GoogleAnalytics, tmp_path: Path) -> None:
    analytics.validates, analytics.ahead = False, -4 * 24 * 3600.0
    then = (datetime.now(UTC) - timedelta(days=4, hours=1)).isoformat()
    assert deliver(Ga4Destination(config(endpoint=analytics.endpoint)), tmp_path, click(_timestamp=then)).rows == 1


def test_a_clock_that_is_days_behind_sends_nothing_that_would_be_dropped(
    analytics: GoogleAnalytics, tmp_path: Path
) -> None:
    analytics.ahead = 4 * 24 * 3600.0
    receipt = deliver(Ga4Destination(config(endpoint=analytics.endpoint)), tmp_path, click(), click())
    (failures,) = receipt.failures
    assert failures.column("code").to_pylist() == ["too_old", "too_old"]


@pytest.mark.parametrize("date", [None, "yesterday", "", "Tue, 99 Nov 2026 00:00:00 GMT"])
def test_an_answer_without_a_time_leaves_the_clock_as_it_was(date: str | None) -> None:
    clock = ServerClock()
    clock.observe(date)
    assert not clock.is_known
    clock.observe("Tue, 17 Nov 2026 12:00:00 GMT")
    clock.observe(date)
    assert 0 <= clock.now() - datetime(2026, 11, 17, 12, tzinfo=UTC).timestamp() < 60


@pytest.mark.parametrize("status", [429, 500, 503, 401, 403, 404, 302])
def test_what_was_taken_before_a_failure_is_not_sent_again(
    status: int, analytics: GoogleAnalytics, tmp_path: Path
) -> None:
    destination = Ga4Destination(config(endpoint=analytics.endpoint))
    data = [json.dumps(click(f"c{number}", n=number)).encode() for number in range(4)]
    parts = Staging(destination, tmp_path / "stage").stage(data)
    for taken in range(1, 4):
        analytics.answers[:] = [None, status]  # one more passes at each try
        with pytest.raises(TransientError, match=r"PEN-DST-120") as caught:
            destination.write(batch(), parts)
        assert SECRET not in str(caught.value)
        assert len(analytics.requests) == taken
    assert destination.write(batch(), parts).rows == 4
    assert [event["params"]["n"] for event in analytics.events] == [0, 1, 2, 3]


def test_an_answer_that_is_lost_repeats_the_event_under_the_same_id(analytics: GoogleAnalytics, tmp_path: Path) -> None:
    destination = Ga4Destination(config(endpoint=analytics.endpoint))
    parts = Staging(destination, tmp_path / "stage").stage([json.dumps(click()).encode()])
    analytics.answers.append(0)
    with pytest.raises(TransientError, match="PEN-DST-120"):
        destination.write(batch(), parts)
    assert destination.write(batch(), parts).rows == 1
    assert [event["params"]["penstock_id"] for event in analytics.events] == ["0-0", "0-0"]


def test_events_of_another_log_or_of_a_restored_copy_have_other_ids(analytics: GoogleAnalytics, tmp_path: Path) -> None:
    """An event that is sent again, by whichever copy of the log, has the same one."""

    def append(folder: str, *numbers: int) -> None:
        with LocalLog(tmp_path / folder).writer("web") as writer:
            writer.append(entries(Record(json.dumps(click(n=number)).encode(), "web") for number in numbers))

    def send(folder: str) -> list[str]:
        log, destination = LocalLog(tmp_path / folder), Ga4Destination(config(endpoint=analytics.endpoint))
        (tmp_path / "stage").mkdir(exist_ok=True)
        stager = destination.stager(tmp_path / "stage", {})
        for rows in log.read(0, 0):
            stager.add(rows)
        known = replace(batch(), record_ids=RecordIds(log))
        before = len(analytics.events)
        destination.write(known, stager.finish())
        return [event["params"]["penstock_id"] for event in analytics.events[before:]]

    append("first", 1, 2)
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    append("first", 3)
    append("copy", 4)
    append("new", 5, 6, 7)
    first, copy, new = send("first"), send("copy"), send("new")
    assert first == send("first")
    assert first[:2] == copy[:2]
    assert len({*first, *copy, *new}) == 2 + 1 + 1 + 3
    assert all(len(each) <= 100 and each.rpartition("-")[2] in "012" for each in [*first, *copy, *new])


def test_a_request_that_is_refused_is_cut_down_to_the_event_at_fault(
    analytics: GoogleAnalytics, tmp_path: Path
) -> None:
    destination = Ga4Destination(config(endpoint=analytics.endpoint))
    # Three in one request are refused, then the first alone and the third alone pass.
    analytics.answers[:] = [400, None, 400, None]
    receipt = deliver(destination, tmp_path, *(click(n=number) for number in range(3)))
    (failures,) = receipt.failures
    assert (failures.column("offset").to_pylist(), failures.column("code").to_pylist()) == ([1], ["refused"])
    assert [event["params"]["n"] for event in analytics.events] == [0, 2]
    assert delivered_rows(receipt) == 3


def test_rows_that_a_step_made_of_one_record_are_told_apart(analytics: GoogleAnalytics, tmp_path: Path) -> None:
    destination = Ga4Destination(config(endpoint=analytics.endpoint))
    rows = placed(entries(Record(json.dumps(click(n=number)).encode(), "web") for number in range(3)), 0, 5)
    offsets = rows.set_column(
        rows.schema.get_field_index("offset"), rows.schema.field("offset"), rows.column("offset").take([0, 0, 0])
    )
    (tmp_path / "stage").mkdir()
    stager = destination.stager(tmp_path / "stage", {})
    stager.add(number_items(offsets))
    # A step in Spark does not number its rows.
    stager.add(offsets.slice(0, 2))
    stager.add(offsets.slice(2))
    assert destination.write(batch(), stager.finish()).rows == 6
    named = ["0-5-1", "0-5-2", "0-5-3", "0-5", "0-5.1", "0-5.2"]
    assert [event["params"]["penstock_id"] for event in analytics.events] == named


def test_a_route_that_stops_at_the_first_bad_record_sends_nothing_of_a_batch_with_one(
    analytics: GoogleAnalytics, tmp_path: Path
) -> None:
    destination = Ga4Destination(config(endpoint=analytics.endpoint))
    with pytest.raises(RefusedError, match="PEN-DST-121"):
        deliver(destination, tmp_path, click(), click(_timestamp="2020-01-01T00:00:00Z"), whole=True)
    assert analytics.events == []
    assert deliver(destination, tmp_path, click(), number=1, whole=True).rows == 1


def test_validation_alone_keeps_nothing_and_fails_what_it_finds(analytics: GoogleAnalytics, tmp_path: Path) -> None:
    destination = Ga4Destination(config(endpoint=analytics.endpoint, validate_only=True, max_value=500))
    receipt = deliver(destination, tmp_path, click(), click(text="x" * 200), click())
    (failures,) = receipt.failures
    assert (failures.column("offset").to_pylist(), failures.column("code").to_pylist()) == ([1], ["invalid"])
    assert "VALUE_INVALID: param text" in failures.column("message")[0].as_py()
    assert analytics.events == []


def test_a_service_that_is_away_is_tried_again_and_named_without_the_secret(tmp_path: Path) -> None:
    destination = Ga4Destination(config(endpoint=f"http://127.0.0.1:{free_port()}", timeout="2s"))
    for call in (lambda: deliver(destination, tmp_path, click()), destination.check):
        with pytest.raises(TransientError, match=r"PEN-DST-120.*127\.0\.0\.1") as caught:
            call()
        assert SECRET not in str(caught.value)


WRONG: list[dict[str, Any]] = [
    {"measurement_id": "UA-12345"},
    {"api_secret": ""},
    {"client_id": None},
    {"client_id": "/"},
    {"event_name": "session_start"},
    {"event_name": "{{ broken"},
    {"user_properties": {"user_id": "/x"}},
    {"user_properties": {"x" * 25: "/x"}},
    {"id_param": "ga_id"},
    {"endpoint": "www.google-analytics.com"},
    {"max_value": 501},
]


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_options_that_break_a_rule_are_refused_with_the_config(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        config(**options)
    assert SECRET not in str(caught.value)


names = st.one_of(
    st.sampled_from(["click", "ga_x", "session_start", "error", "_a", "x" * 41, "page_location", "firebase_b"]),
    st.text(max_size=45),
)
values = st.one_of(
    st.text(max_size=130),
    st.integers(),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False),
    st.integers().map(lambda n: 10 ** abs(n % 500)),
    st.text(st.characters(categories=["Cs", "L"]), max_size=3),
    st.lists(st.integers(), max_size=60),
)
items = st.lists(st.dictionaries(names, st.one_of(values, st.dictionaries(names, values, max_size=2)), max_size=30))


@given(names, st.dictionaries(names, values, max_size=30), items)
def test_what_passes_our_rules_passes_those_of_the_validation_server(
    name: str, fields: dict[str, Any], items: list[dict[str, Any]]
) -> None:
    mapper = Mapper(config(event_name="{{ the_name_of_it }}", params=None))
    data = json.dumps({**fields, "items": items, "the_name_of_it": name, "cid": "c"}).encode()
    try:
        event = mapper.event(data, NOW)
    except BrokenRule:
        return
    if event is not None:
        (request,) = requests([Staged(0, 0, 0, 0, event)])
        assert problem(read(request.body), len(request.body)) is None
