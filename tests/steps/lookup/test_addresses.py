"""An address is found however it is written, and its facts have the promised names and types."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.steps.lookup.address_facts import NUMBERS, TEXTS, Address, AddressFacts, address_in
from tests.support.mmdb import BERLIN

V4 = IPv4Address("81.2.69.142")
V6 = IPv6Address("2001:db8:55::1")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("81.2.69.142", V4),
        (" 81.2.69.142\n", V4),
        ("81.2.69.142:443", V4),
        ("[81.2.69.142]:443", V4),
        ("::ffff:81.2.69.142", V4),
        ("::FFFF:5102:458e", V4),
        ("[::ffff:81.2.69.142]:80", V4),
        ("2001:db8:55::1", V6),
        ("2001:DB8:0055:0:0:0:0:1", V6),
        ("[2001:db8:55::1]", V6),
        ("[2001:db8:55::1]:65535", V6),
        ("2001:db8:55::1%eth0", V6),
        ("10.0.0.1", IPv4Address("10.0.0.1")),
        ("::1", IPv6Address("::1")),
        ("", None),
        (" ", None),
        (":", None),
        ("::ffff:", None),
        ("[", None),
        ("[]", None),
        ("[]:80", None),
        ("unknown", None),
        ("localhost:80", None),
        ("81.2.69", None),
        ("81.2.69.256", None),
        ("081.2.69.142", None),
        ("81.2.69.142:", None),
        ("81.2.69.142:http", None),
        ("81.2.69.142:123456", None),
        ("81.2.69.142/24", None),
        ("81.2.69.142, 10.0.0.1", None),
        ("[2001:db8:55::1]x", None),
        ("[2001:db8:55::1", V6),
        ("1359103374", None),
        ("٨١.2.69.142", None),
        ("81.2.69.142\0", None),
    ],
)
def test_an_address_is_read_however_it_is_written(text: str, address: Address | None) -> None:
    assert address_in(text) == address


@given(st.text(max_size=40) | st.text("0123456789abcdef.:[]% ", max_size=40))
def test_no_text_is_too_strange(text: str) -> None:
    address_in(text)


class Fixed:
    """A database with one record for every address."""

    def __init__(self, record: Any) -> None:
        self._record = record

    def get(self, address: Address) -> object:
        return self._record


def test_every_key_of_a_city_has_its_promised_value() -> None:
    assert AddressFacts([Fixed(BERLIN)]).about("81.2.69.142") == {
        "continent": "EU", "country": "DE", "country_name": "Germany", "region": "BE", "region_name": "State of Berlin",
        "city": "Berlin", "zip": "10117", "latitude": 52.5196, "longitude": 13.4069, "accuracy_radius": 20,
        "timezone": "Europe/Berlin",
    }  # fmt: skip


PROVIDER = {
    "autonomous_system_number": 1,
    "autonomous_system_organization": "a",
    "isp": "b",
    "organization": "c",
    "connection_type": "d",
    "domain": "e",
}


@pytest.mark.parametrize("record", [PROVIDER, {"traits": PROVIDER}], ids=["ISP", "Enterprise"])
def test_providers_are_found_in_both_layouts(record: Any) -> None:
    assert AddressFacts([Fixed(record)]).about("::1") == PROVIDER


def test_of_two_databases_the_first_counts_and_the_second_adds() -> None:
    first, second = Fixed({"isp": "first"}), Fixed({"isp": "second", "domain": "second"})
    assert AddressFacts([first, second]).about("::1") == {"isp": "first", "domain": "second"}


@pytest.mark.parametrize(
    "record",
    [
        None, 1, "text", [], {}, {"city": None}, {"city": "Berlin"}, {"city": {"names": []}}, {"city": {"names": {}}},
        {"subdivisions": []}, {"subdivisions": {}}, {"subdivisions": [None]}, {"country": {"iso_code": 7}}, {"isp": ""},
        {"location": {"latitude": "52"}}, {"location": {"latitude": float("nan")}}, {"location": {"latitude": True}},
    ],
    ids=str,
)  # fmt: skip
def test_a_database_of_another_layout_says_nothing(record: Any) -> None:
    assert AddressFacts([Fixed(record)]).about("::1") == {}


def test_every_key_that_can_be_found_is_announced() -> None:
    assert sorted(AddressFacts.keys) == sorted([*TEXTS, *NUMBERS])
