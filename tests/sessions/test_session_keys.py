"""Which session an event belongs to."""

from __future__ import annotations

import pytest

from penstock.sessions.session_keys import key_fields, session_key, session_name, share_of


def test_the_file_and_the_host_are_always_part_of_the_key() -> None:
    assert session_key(key_fields([]), {"serverHost": "foo"}) == "029a92a8c5ac89b8fc0173fdf3a85cb6"


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        (["k1", "k2"], "4410d57b15f30fb22e92fc3e2338f288"),
        (["k2", "k1"], "ce28b69e77b27f012501095cb343e2ae"),
    ],
)
def test_the_key_follows_the_order_of_the_fields(fields: list[str], key: str) -> None:
    assert session_key(fields, {"k1": "v1", "k2": "v2", "k3": "v3"}) == key


def test_five_hosts_are_five_sessions() -> None:
    assert len({session_key(key_fields([]), {"serverHost": f"host-{number}"}) for number in range(5)}) == 5


@pytest.mark.parametrize(
    ("group_by", "fields"),
    [
        ([], ("logfile", "serverHost")),
        (["service"], ("service", "logfile", "serverHost")),
        (["serverHost"], ("serverHost", "logfile")),
        (["logfile", "serverHost"], ("logfile", "serverHost")),
        (["service", "logfile"], ("service", "logfile", "serverHost")),
    ],
)
def test_a_field_is_named_once(group_by: list[str], fields: tuple[str, ...]) -> None:
    assert key_fields(group_by) == fields


@pytest.mark.parametrize("other", ["", None])
def test_a_field_without_a_value_counts_as_an_empty_text(other: object) -> None:
    assert session_key(["a"], {"a": other}) == session_key(["a"], {})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": "1"}),
        ({"a": True}, {"a": "true"}),
        ({"a": 1.5}, {"a": "1.5"}),
        ({"a": [1, 2]}, {"a": "[1,2]"}),
    ],
)
def test_values_that_are_no_texts_count_as_json(one: dict[str, object], other: dict[str, object]) -> None:
    assert session_key(["a"], one) == session_key(["a"], other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": "x"}, {"a": "y"}),
        ({"a": "x"}, {"b": "x"}),
        ({"a": "x", "b": ""}, {"a": "", "b": "x"}),
        ({"a": "ä"}, {"a": "a"}),
        ({"a": "\ud800"}, {"a": "\ud801"}),
        ({"a": "x___DELIM___b:y"}, {"a": "x", "b": "y___DELIM___b:"}),
        ({"a": "x___DELIM___b:y"}, {"a": "x", "b": "y"}),
        ({"a": "", "b": "___DELIM___b:"}, {"a": "___DELIM___b:", "b": ""}),
    ],
)
def test_other_values_are_another_session(one: dict[str, object], other: dict[str, object]) -> None:
    assert session_key(["a", "b"], one) != session_key(["a", "b"], other)


def test_other_fields_do_not_matter() -> None:
    assert session_key(["a"], {"a": 1, "b": 2}) == session_key(["a"], {"b": 3, "a": 1})


def test_a_hot_key_is_spread_over_its_sessions() -> None:
    assert {share_of("key", number, 3) for number in range(10)} == {"key-0", "key-1", "key-2"}
    assert share_of("key", 7, 1) == "key"


def test_a_session_belongs_to_a_client() -> None:
    assert session_name("client", "key") == "client-key"
