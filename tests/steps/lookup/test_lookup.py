"""``lookup`` adds what is known, keeps what is there, and never fails an event."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import maxminddb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config.loading import load
from penstock.record import Record, entries, placed
from penstock.steps.lookup.address_facts import Address, AddressFacts
from penstock.steps.lookup.answer_memory import AnswerCache, Fact
from penstock.steps.lookup.config import LookupConfig, LookupName
from penstock.steps.lookup.step import Lookup
from penstock.steps.lookup.user_agents import AgentFacts
from penstock.testing.step import DOCUMENTS, OBJECTS, VALUES, StepContract, as_json, batch_of, kept
from tests.steps.reference import put

IP = {"name": "ip_lookup", "from": "/ip", "to": "/ctx/geo"}
AGENT = {"name": "user_agent_parse", "from": "/ua", "to": "/ctx/agent"}
BERLIN = (
    b'{"continent":"EU","country":"DE","country_name":"Germany","region":"BE","region_name":"State of Berlin",'
    b'"city":"Berlin","zip":"10117","latitude":52.5196,"longitude":13.4069,"accuracy_radius":20,'
    b'"timezone":"Europe/Berlin","autonomous_system_number":20712,'
    b'"autonomous_system_organization":"Andrews \\"A&A\\" Ltd"}'
)
CURL = b'{"ua_family":"curl","ua_version":"8.1.2","bot":false}'


class TestLookup(StepContract):
    name = "lookup"
    configs: ClassVar[list[Any]] = []

    @pytest.fixture(autouse=True)
    def _configs(self, databases: list[Path]) -> None:
        type(self).configs = [
            {"databases": databases},
            {"rules": [{"name": "ip_lookup", "from": "a", "to": "b"}], "databases": databases, "implicit": False},
            {"rules": [{"name": "user_agent_parse", "from": "user.name", "to": "user"}], "databases": databases},
            {"rules": [IP | {"from": "/id", "to": "/a/b"}, AGENT | {"from": "/a/b/country", "to": "/a/c"}]},
        ]


def step(databases: Sequence[Path], *rules: dict[str, str], implicit: bool = False) -> Lookup:
    return Lookup(LookupConfig.model_validate({"rules": rules, "databases": databases, "implicit": implicit}))


class CountingDatabase:
    def __init__(self) -> None:
        self.calls = 0

    def get(self, address: Address) -> object:
        self.calls += 1
        return {"isp": str(address)}


class CountingAgents(AgentFacts):
    def __init__(self) -> None:
        self.calls = 0

    def about(self, text: str) -> Mapping[str, Fact]:
        self.calls += 1
        return super().about(text)


@pytest.mark.parametrize(
    ("address", "city"),
    [
        ("81.2.69.142", "Berlin"),
        ("2001:db8:55::1", "São Paulo"),
        ("::ffff:81.2.69.142", "Berlin"),
        ("81.2.69.142:5061", "Berlin"),
        ("[2001:db8:55::1]:443", "São Paulo"),
        (" 81.2.69.142 ", "Berlin"),
        ("10.0.0.1", None),
        ("192.168.1.1", None),
        ("127.0.0.1", None),
        ("::1", None),
        ("fe80::1%eth0", None),
        ("81.2.69", None),
        ("garbage", None),
        ("", None),
        ("x" * 1_000_000, None),
    ],
)
def test_an_address_has_its_place_and_what_is_none_changes_nothing(
    databases: list[Path], address: str, city: str | None
) -> None:
    data = json.dumps({"ip": address}).encode()
    (result,) = kept(step(databases, IP).apply(batch_of(data)))
    if city is None:
        assert result == data
    else:
        assert json.loads(result)["ctx"]["geo"]["city"] == city


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # nothing there, and nothing around it
        (b'{"ip":"81.2.69.142"}', b'{"ip":"81.2.69.142","ctx":{"geo":%b}}'),
        (b' { "ip" : "81.2.69.142" , "z":1.50 } ', b' { "ip" : "81.2.69.142" , "z":1.50,"ctx":{"geo":%b} } '),
        (b'{"ctx":{},"ip":"81.2.69.142"}', b'{"ctx":{"geo":%b},"ip":"81.2.69.142"}'),
        (b'{"ctx":{ },"ip":"81.2.69.142"}', b'{"ctx":{"geo":%b },"ip":"81.2.69.142"}'),
        (b'{"ctx":{"a": 1\n},"ip":"81.2.69.142"}', b'{"ctx":{"a": 1,"geo":%b\n},"ip":"81.2.69.142"}'),
        # escapes
        (b'{"ip":"81\\u002e2.69.142"}', b'{"ip":"81\\u002e2.69.142","ctx":{"geo":%b}}'),
        (b'{"\\u0069p":"81.2.69.142"}', b'{"\\u0069p":"81.2.69.142","ctx":{"geo":%b}}'),
        # a null is nothing
        (b'{"ctx":null,"ip":"81.2.69.142"}', b'{"ctx":{"geo":%b},"ip":"81.2.69.142"}'),
        (b'{"ctx":{"geo":null},"ip":"81.2.69.142"}', b'{"ctx":{"geo":%b},"ip":"81.2.69.142"}'),
        # of a repeated key the last one counts
        (b'{"ip":1,"ip":"81.2.69.142"}', b'{"ip":1,"ip":"81.2.69.142","ctx":{"geo":%b}}'),
        (b'{"ctx":1,"ip":"81.2.69.142","ctx":{}}', b'{"ctx":1,"ip":"81.2.69.142","ctx":{"geo":%b}}'),
    ],
)
def test_the_answer_goes_where_it_is_told_and_other_bytes_stay(
    databases: list[Path], before: bytes, after: bytes
) -> None:
    assert kept(step(databases, IP).apply(batch_of(before))) == [after % BERLIN]


@pytest.mark.parametrize(
    "data",
    [
        b'{"ctx":{"geo":"home"},"ip":"81.2.69.142"}',
        b'{"ctx":{"geo":[]},"ip":"81.2.69.142"}',
        b'{"ctx":{"geo":false},"ip":"81.2.69.142"}',
        b'{"ctx":7,"ip":"81.2.69.142"}',
        b'{"ctx":"x","ip":"81.2.69.142"}',
        b'{"ctx":[{}],"ip":"81.2.69.142"}',
        b'{"ctx":{}}',
        b'{"ip":null}',
        b'{"ip":81.2}',
        b'{"ip":true}',
        b'{"ip":["81.2.69.142"]}',
        b'{"ip":{"ip":"81.2.69.142"}}',
        b'{"ip":"\\ud800"}',
        b'{"ip":"81.2.69.142\\u0000"}',
    ],
)
def test_what_cannot_be_asked_or_answered_changes_nothing(databases: list[Path], data: bytes) -> None:
    assert kept(step(databases, IP).apply(batch_of(data))) == [data]


@pytest.mark.parametrize(
    ("there", "becomes"),
    [
        (b"{}", CURL),
        (b'{"bot":true}', b'{"bot":true,"ua_family":"curl","ua_version":"8.1.2"}'),
        (b'{ "bot" : null , "x":[1, 2] }', b'{ "bot" : null , "x":[1, 2],"ua_family":"curl","ua_version":"8.1.2" }'),
        (b'{"\\u0062ot":1}', b'{"\\u0062ot":1,"ua_family":"curl","ua_version":"8.1.2"}'),
        (b'{"ua_version":9,"ua_family":{}}', b'{"ua_version":9,"ua_family":{},"bot":false}'),
        (b'{"ua_version":9,"ua_family":{},"bot":0}', b'{"ua_version":9,"ua_family":{},"bot":0}'),
        (b'{"ua_family":1,"ua_family":2}', b'{"ua_family":1,"ua_family":2,"ua_version":"8.1.2","bot":false}'),
    ],
)
def test_an_object_that_is_there_keeps_its_keys_and_gets_the_others(there: bytes, becomes: bytes) -> None:
    data = b'{"ua":"curl/8.1.2","ctx":{"agent":%b,"z":0}}'
    assert kept(step([], AGENT).apply(batch_of(data % there))) == [data % becomes]


def test_rows_of_all_sorts_stand_beside_each_other() -> None:
    before = [
        b'{"ua":"curl/8.1.2"}',
        b'{"ua":"curl/8.1.2","ctx":{"agent":{"bot":1}}}',
        b'{"ua":"?"}',
        b'{"ua":"curl/8.1.2","ctx":{"agent":{"bot":2}}}',
        b'{"ua":"curl/8.1.2","ctx":3}',
        b'{"ua":"curl/8.1.2","ctx":{}}',
    ]
    assert kept(step([], AGENT).apply(batch_of(*before))) == [
        b'{"ua":"curl/8.1.2","ctx":{"agent":%b}}' % CURL,
        b'{"ua":"curl/8.1.2","ctx":{"agent":{"bot":1,"ua_family":"curl","ua_version":"8.1.2"}}}',
        before[2],
        b'{"ua":"curl/8.1.2","ctx":{"agent":{"bot":2,"ua_family":"curl","ua_version":"8.1.2"}}}',
        before[4],
        b'{"ua":"curl/8.1.2","ctx":{"agent":%b}}' % CURL,
    ]


@pytest.mark.parametrize(
    ("targets", "before", "after"),
    [
        (("/ctx/geo", "/ctx/agent"), b'{%b,"ctx":{}}', b'{%b,"ctx":{"geo":%b,"agent":%b}}'),
        (("/ctx/geo", "/ctx/agent"), b"{%b}", b'{%b,"ctx":{"geo":%b,"agent":%b}}'),
        (("/ctx/geo", "/agent"), b"{%b}", b'{%b,"ctx":{"geo":%b},"agent":%b}'),
        (("/ctx/geo", "/agent"), b'{%b,"ctx":null}', b'{%b,"ctx":{"geo":%b},"agent":%b}'),
        (("/geo", "/ctx/agent"), b'{%b,"ctx":{}}', b'{%b,"ctx":{"agent":%b},"geo":%b}'),
        (("/ctx/geo", "/agent"), b'{%b,"ctx":{}}', b'{%b,"ctx":{"geo":%b},"agent":%b}'),
        (("/ctx/geo", "/ctx/geo/agent"), b'{%b,"ctx":{}}', b'{%b,"ctx":{"geo":{%b,"agent":%b}}}'),
    ],
)
def test_two_rules_find_their_places(
    databases: list[Path], targets: tuple[str, str], before: bytes, after: bytes
) -> None:
    fields = b'"ip":"81.2.69.142","ua":"curl/8.1.2"'
    rules = [IP | {"to": targets[0]}, AGENT | {"to": targets[1]}]
    (result,) = kept(step(databases, *rules).apply(batch_of(before % fields)))
    geo = BERLIN[1:-1] if targets[1].startswith(targets[0]) else BERLIN
    answers = (CURL, geo) if targets[0] == "/geo" else (geo, CURL)
    assert result == after % (fields, *answers)


def test_both_answers_can_share_an_object(databases: list[Path]) -> None:
    data = b'{"ip":"81.2.69.142","ua":"curl/8.1.2"}'
    (result,) = kept(step(databases, IP | {"to": "about"}, AGENT | {"to": "about"}).apply(batch_of(data)))
    assert json.loads(result)["about"] == json.loads(BERLIN) | json.loads(CURL)


def test_a_rule_sees_what_the_one_before_it_added() -> None:
    memories = {LookupName.IP_LOOKUP: AnswerCache(AddressFacts([CountingDatabase()]))}
    rules = [IP | {"to": "/first"}, IP | {"from": "/first/isp", "to": "/second"}]
    chained = Lookup(LookupConfig.model_validate({"rules": rules, "implicit": False}), memories)
    expected = b'{"ip":"::1","first":{"isp":"::1"},"second":{"isp":"::1"}}'
    assert kept(chained.apply(batch_of(b'{"ip":"::1"}'))) == [expected]


def test_a_text_that_is_too_long_for_an_agent_changes_nothing() -> None:
    long, short = (b'{"ua":"curl/8.1.2%b"}' % (b" " * blanks) for blanks in (3000, 1000))
    results = kept(step([], AGENT).apply(batch_of(long, short)))
    assert results[0] == long
    assert b"ua_family" in results[1]


EVENT = b'{"eventn_ctx":{"user_agent":"curl/8.1.2"},"source_ip":"81.2.69.142"}'
ENRICHED = (
    b'{"eventn_ctx":{"user_agent":"curl/8.1.2","location":%b,"parsed_ua":%b},"source_ip":"81.2.69.142"}'
    % (BERLIN, CURL)
)  # fmt: skip


def from_endpoints(*endpoints: str | None, data: bytes = EVENT) -> Any:
    headers = [{} if endpoint is None else {"token": "t", "endpoint": endpoint} for endpoint in endpoints]
    return placed(entries(Record(data, headers=header) for header in headers), 0, 0)


def test_events_of_the_js_endpoint_are_looked_up_without_a_rule(databases: list[Path]) -> None:
    batch = from_endpoints("js", "api", None, "bulk", "pixel")
    assert kept(step(databases, implicit=True).apply(batch)) == [ENRICHED, EVENT, EVENT, EVENT, ENRICHED]


def test_implicit_rules_can_be_switched_off(databases: list[Path]) -> None:
    assert kept(step(databases, IP, implicit=False).apply(from_endpoints("js"))) == [EVENT]


def test_a_rule_with_the_same_target_replaces_the_implicit_one(databases: list[Path]) -> None:
    rule = {"name": "ip_lookup", "from": "real_ip", "to": "eventn_ctx.location"}
    data = b'{"eventn_ctx":{},"source_ip":"81.2.69.142","real_ip":"2001:db8:55::1"}'
    batch = from_endpoints("js", "api", data=data)
    cities = [
        json.loads(row)["eventn_ctx"]["location"]["city"]
        for row in kept(step(databases, rule, implicit=True).apply(batch))
    ]
    assert cities == ["São Paulo", "São Paulo"]
    unknown = from_endpoints("js", data=data.replace(b"2001:db8:55::1", b"10.0.0.1"))
    assert b"location" not in kept(step(databases, rule, implicit=True).apply(unknown))[0]


def test_agents_are_parsed_without_any_database() -> None:
    (result,) = kept(step([], implicit=True).apply(from_endpoints("js")))
    assert result == EVENT.replace(b"}", b',"parsed_ua":%b}' % CURL, 1)


def test_distinct_values_are_looked_up_once_not_once_per_event() -> None:
    database = CountingDatabase()
    agents = CountingAgents()
    memories = {
        LookupName.IP_LOOKUP: AnswerCache(AddressFacts([database])),
        LookupName.USER_AGENT_PARSE: AnswerCache(agents),
    }
    counted = Lookup(LookupConfig.model_validate({"rules": [IP, AGENT]}), memories)
    batch = batch_of(*(b'{"ip":"10.1.1.%d","ua":"curl/8.1.%d"}' % (n % 200, n % 200) for n in range(10_000)))
    rows = [json.loads(row)["ctx"] for row in kept(counted.apply(batch))]
    assert database.calls == 200
    assert agents.calls == 200
    assert [row["geo"]["isp"] for row in rows] == [f"10.1.1.{n % 200}" for n in range(10_000)]
    assert [row["agent"]["ua_version"] for row in rows] == [f"8.1.{n % 200}" for n in range(10_000)]
    counted.apply(batch)
    assert database.calls == 200
    assert agents.calls == 200


ADDRESSES = st.sampled_from(["81.2.69.142", "2001:db8:55::1", "81.2.1.1", "10.0.0.1", "x", "", "::ffff:81.2.69.1"])
AGENTS = st.sampled_from(["curl/8.1.2", "Wget/1.2", "", "?"])
THERE = st.none() | st.dictionaries(st.sampled_from(["country", "city", "zip", "bot"]), VALUES, max_size=4) | VALUES
EVENTS = st.builds(
    lambda rest, own, spaced, ascii_only: as_json(rest | own, spaced, ascii_only),
    OBJECTS,
    st.fixed_dictionaries(
        {},
        optional={
            "ip": ADDRESSES | VALUES,
            "ua": AGENTS,
            "ctx": VALUES | st.fixed_dictionaries({}, optional={"geo": THERE, "a": VALUES, "agent": THERE}),
        },
    ),
    st.booleans(),
    st.booleans(),
)


def looked_up(event: dict[str, Any], facts: AddressFacts) -> dict[str, Any]:
    """The slow way."""
    address = event.get("ip")
    answer = dict(facts.about(address)) if isinstance(address, str) else {}
    around = event.get("ctx")
    there = around.get("geo") if isinstance(around, dict) else None
    if not answer or not (there is None or isinstance(there, dict)):
        return event
    placed_there = put(event, ["ctx", "geo"], {**answer, **(there or {})})
    return event if placed_there is None else placed_there


def test_it_does_what_the_slow_way_does_and_never_fails(databases: list[Path]) -> None:
    lookup = step(databases, IP)
    facts = AddressFacts([maxminddb.open_database(path) for path in databases])

    @settings(max_examples=150, deadline=None)
    @given(st.lists(EVENTS, min_size=1, max_size=6))
    def holds(events: list[bytes]) -> None:
        outcome = lookup.apply(batch_of(*events))
        assert outcome.failures.num_rows == outcome.skipped == 0
        assert outcome.kept.column("offset").to_pylist() == list(range(100, 100 + len(events)))
        assert [json.loads(row) for row in kept(outcome)] == [looked_up(json.loads(event), facts) for event in events]
        for before, after in zip(events, kept(outcome), strict=True):
            assert replaced(before, after) in (b"", b"null")

    holds()


@pytest.mark.parametrize("target", ["/ctx/agent", "/agent", "/ctx/geo", "/ctx/geo/zip", "/ctx"])
def test_rules_in_one_step_do_what_they_do_in_two(databases: list[Path], target: str) -> None:
    second = AGENT | {"to": target}
    together, apart = step(databases, IP, second), (step(databases, IP), step(databases, second))

    @settings(max_examples=60, deadline=None)
    @given(st.lists(EVENTS, min_size=1, max_size=4))
    def holds(events: list[bytes]) -> None:
        batch = batch_of(*events)
        assert together.apply(batch) == apart[1].apply(apart[0].apply(batch).kept)

    holds()


def replaced(before: bytes, after: bytes) -> bytes:
    """What of ``before`` is not in ``after``, if that differs from it in one place."""
    head = 0
    while head < len(before) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < len(before) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    return before[head : len(before) - tail]


@settings(max_examples=60, deadline=None)
@given(st.lists(DOCUMENTS, max_size=5))
def test_events_without_the_fields_stay_byte_for_byte(data: list[bytes]) -> None:
    outcome = step([], AGENT, implicit=True).apply(batch_of(*data))
    assert kept(outcome) == data


def test_the_config_of_a_route_is_read_with_paths_from_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(
        """
name: clicks
sources: {web: {type: http, tokens: [{id: site, client_secret: s}]}}
routes:
  all:
    from: web
    steps:
      - lookup:
          rules:
            - {name: ip_lookup, from: /source_ip, to: /eventn_ctx/location}
            - {name: user_agent_parse, from: /eventn_ctx/user_agent, to: /eventn_ctx/parsed_ua}
          databases: [geo/GeoLite2-City.mmdb, geo/GeoLite2-ASN.mmdb]
          implicit: true
    to: {type: "null"}
"""
    )
    ((name, config),) = load(tmp_path / "pipeline.yaml").routes["all"].step_configs
    assert name == "lookup"
    assert isinstance(config, LookupConfig)
    assert config.databases == (tmp_path / "geo/GeoLite2-City.mmdb", tmp_path / "geo/GeoLite2-ASN.mmdb")
    assert config.implicit_rules == ()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"implicit": False}, "nothing to look up"),
        ({"rules": [{"name": "geo", "from": "a", "to": "b"}]}, "ip_lookup.*user_agent_parse"),
        ({"rules": [{"name": "ip_lookup", "to": "b"}]}, "from"),
        ({"rules": [{"name": "ip_lookup", "from": "a"}]}, "to"),
        ({"rules": [{"name": "ip_lookup", "from": "a", "to": "/"}]}, "whole record"),
        ({"rules": [{"name": "ip_lookup", "from": "/a", "to": "a"}]}, "rule 0: 'a' is no place"),
        ({"rules": [IP, {"name": "ip_lookup", "from": "/a", "to": "/a/b"}]}, "rule 1: '/a/b' is no place"),
        ({"rules": [IP, IP | {"from": "/other"}]}, "rule 1: rule 0 has the same name"),
        ({"rules": [IP | {"database": "x"}]}, "database"),
    ],
)
def test_a_bad_config_says_what_is_wrong(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LookupConfig.model_validate(config)
