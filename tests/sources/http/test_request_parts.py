"""Tokens, client addresses and content encodings: the parts of a request that are not its events."""

from __future__ import annotations

import gzip
from base64 import b64encode

import pyarrow as pa
import pytest
from pydantic import ValidationError

from penstock.config.value_types.listen_address import split_address
from penstock.sources.http.access.auth_tokens import Grant, TokenTable, presented_secret
from penstock.sources.http.access.client_address import ClientAddress
from penstock.sources.http.body.encodings import DamagedBody, TooLarge, UnknownEncoding, unpacked
from penstock.sources.http.config import HttpConfig, TokenConfig


class Lines(dict[str, str]):
    """Headers of a request; lines of one name are told apart by a newline."""

    def get_all(self, key: str) -> list[str]:
        return self[key].split("\n") if key in self else []


def basic(text: str) -> str:
    return "Basic " + b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("query", "headers", "secret"),
    [
        ("token=a", {"x-auth-token": "b", "api_key": "c", "authorization": basic("d:")}, "a"),
        ("x=1&token=a%2Bb+c", {}, "a+b c"),
        ("token=", {"x-auth-token": "b", "api_key": "c"}, "b"),
        ("", {"api_key": "c", "authorization": basic("d:")}, "c"),
        ("", {"authorization": basic("d:ignored")}, "d"),
        ("", {"authorization": basic("d")}, "d"),
        ("nottoken=a", {"authorization": "Bearer x"}, None),
        ("", {"authorization": "Basic !!!"}, None),
        ("", {"authorization": "Basic caf\u00e9"}, None),
        ("", {}, None),
    ],
)
def test_the_token_is_looked_for_in_order(query: str, headers: dict[str, str], secret: str | None) -> None:
    assert presented_secret(query, Lines(headers)) == secret


def test_a_secret_gives_its_token_and_kind() -> None:
    table = TokenTable(
        [
            TokenConfig.model_validate({"id": "site", "client_secret": "c1", "server_secret": "s1"}),
            TokenConfig.model_validate({"id": "shop", "client_secret": "ключ"}),
        ]
    )
    assert table.grant("c1") == Grant("site", server=False)
    assert table.grant("s1") == Grant("site", server=True)
    assert table.grant("ключ") == Grant("shop", server=False)
    assert [table.grant(wrong) for wrong in ("", "c", "c1 ", "C1", "\ud800")] == [None] * 5


@pytest.mark.parametrize(
    ("peer", "headers", "expected"),
    [
        ("192.0.2.1:4711", {}, "192.0.2.1"),
        ("[2001:db8::5]:4711", {}, "2001:db8::5"),
        ("192.0.2.1:4711", {"x-forwarded-for": "9.9.9.9"}, "192.0.2.1"),
        ("10.0.0.1:1", {"x-forwarded-for": "9.9.9.9"}, "9.9.9.9"),
        ("10.0.0.1:1", {"x-forwarded-for": "6.6.6.6, 9.9.9.9, 10.1.1.1"}, "9.9.9.9"),
        ("10.0.0.1:1", {"x-forwarded-for": "6.6.6.6, nonsense, 10.1.1.1"}, "10.1.1.1"),
        ("10.0.0.1:1", {"x-forwarded-for": "2001:db8::9"}, "2001:db8::9"),
        ("10.0.0.1:1", {"x-forwarded-for": "[2001:db8::9]:443"}, "2001:db8::9"),
        ("10.0.0.1:1", {"x-forwarded-for": "::ffff:9.9.9.9"}, "9.9.9.9"),
        ("10.0.0.1:1", {"x-forwarded-for": "9.9.9.9:5000"}, "9.9.9.9"),
        ("10.0.0.1:1", {"x-forwarded-for": "6.6.6.6\n9.9.9.9"}, "9.9.9.9"),
        ("10.0.0.1:1", {"x-forwarded-for": "6.6.6.6\n9.9.9.9, 10.2.2.2\n10.1.1.1"}, "9.9.9.9"),
        ("10.0.0.1:1", {"x-forwarded-for": "6.6.6.6\n9.9.9.9\n"}, "9.9.9.9"),
        ("10.0.0.1:1", {"x-forwarded-for": "6.6.6.6," + "10.1.1.1," * 100 + "10.1.1.2"}, "10.1.1.1"),
        ("10.0.0.1:1", {"x-forwarded-for": "", "x-real-ip": "9.9.9.9"}, "9.9.9.9"),
        ("10.0.0.1:1", {"x-real-ip": "6.6.6.6\n9.9.9.9"}, "9.9.9.9"),
        ("10.0.0.1:1", {"x-real-ip": "9.9.9.9"}, "9.9.9.9"),
        ("10.0.0.1:1", {"x-real-ip": "nonsense"}, "10.0.0.1"),
        ("10.0.0.1:1", {}, "10.0.0.1"),
        ("[fd00::1]:1", {"x-real-ip": "9.9.9.9"}, "9.9.9.9"),
        ("10.0.0.1:1", {"x-forwarded-for": "3.3.3.3, , 10.1.1.1"}, "3.3.3.3"),
        ("10.0.0.1:1", {"x-forwarded-for": "6.6.6.6, 3.3.3.3,\t,,10.1.1.1, "}, "3.3.3.3"),
        ("10.0.0.1:1", {"x-forwarded-for": "6.6.6.6, 3.3.3.3\n\n10.1.1.1\n"}, "3.3.3.3"),
        ("10.0.0.1:1", {"x-forwarded-for": " ,\n", "x-real-ip": "9.9.9.9"}, "9.9.9.9"),
        ("10.0.0.1:1", {"x-forwarded-for": ",,"}, "10.0.0.1"),
        ("10.0.0.1:1", {"x-forwarded-for": 'fe80::1%a\\b"c'}, "fe80::1"),
        ("10.0.0.1:1", {"x-forwarded-for": "[fe80::1%eth0]:443, 10.1.1.1"}, "fe80::1"),
        ("10.0.0.1:1", {"x-forwarded-for": "9.9.9.9, fd00::7%eth0"}, "9.9.9.9"),
        ("10.0.0.1:1", {"x-forwarded-for": "::ffff:9.9.9.9%x"}, "9.9.9.9"),
        ("10.0.0.1:1", {"x-forwarded-for": "9.9.9.9%x, 10.1.1.1"}, "10.1.1.1"),
        ("10.0.0.1:1", {"x-real-ip": "fe80::1%a"}, "fe80::1"),
        ("[fe80::1%2]:4711", {}, "fe80::1"),
    ],
)
def test_only_trusted_proxies_are_believed(peer: str, headers: dict[str, str], expected: str) -> None:
    assert ClientAddress(["10.0.0.0/8", "fd00::/8"]).of(peer, Lines(headers)) == expected


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_packed_bodies_are_unpacked_up_to_the_limit(encoding: str) -> None:
    body = b'{"a":1}\n' * 1000
    packed = pa.compress(body, codec=encoding, asbytes=True)
    assert unpacked(packed, encoding, len(body)) == body
    with pytest.raises(TooLarge):
        unpacked(packed, encoding, len(body) - 1)
    with pytest.raises(DamagedBody):
        unpacked(packed[:-6], encoding, len(body))
    with pytest.raises(DamagedBody):
        unpacked(b"not packed at all", encoding, len(body))


def test_a_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    with pytest.raises(TooLarge):
        unpacked(bomb, "gzip", 1000)


def test_encodings_by_other_names() -> None:
    assert unpacked(b"{}", "identity", 10) == b"{}"
    assert unpacked(gzip.compress(b"{}"), " GZIP ", 10) == b"{}"
    with pytest.raises(UnknownEncoding, match="'br'"):
        unpacked(b"{}", "br", 10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": []}, "no tokens"),
        ({}, "Field required"),
        ({"tokens": [{"id": "a"}]}, "'a' has no secret"),
        ({"tokens": [{"id": "a", "client_secret": ""}]}, "empty secret"),
        ({"tokens": [{"id": "a", "client_secret": "x"}, {"id": "a", "client_secret": "y"}]}, "two tokens"),
        ({"tokens": [{"id": "a", "client_secret": "x"}, {"id": "b", "server_secret": "x"}]}, "secret twice"),
        ({"tokens": [{"id": "a", "client_secret": "x", "server_secret": "x"}]}, "secret twice"),
        ({"listen": "8001"}, "host:port"),
        ({"listen": ":8001"}, "names no host"),
        ({"listen": "::1:8001"}, "in brackets"),
        ({"listen": "localhost:99999"}, "host:port"),
        ({"trusted_proxies": ["nonsense"]}, "nonsense"),
        ({"limits": {"event_bytes": 0}}, "greater than 0"),
        ({"limits": {"body_bytes": "100MB"}}, "make it 48MiB or less"),
        ({"limits": {"event_bytes": "49MiB"}}, "make it 48MiB or less"),
        ({"workers": 0}, "greater than or equal to 1"),
        ({"tls": {"cert": "/nowhere/cert.pem", "key": "/nowhere/key.pem"}}, "no file /nowhere/cert.pem"),
        ({"tokens": [{"id": "a", "client_secret": "x", "origins": ["https://a.example/path"]}]}, "no web origin"),
    ],
)
def test_a_wrong_option_is_refused_in_words(options: dict[str, object], message: str) -> None:
    given = (
        options if "tokens" in options or not options else {"tokens": [{"id": "a", "client_secret": "x"}], **options}
    )
    with pytest.raises(ValidationError, match=message):
        HttpConfig.model_validate(given)


def test_secrets_do_not_show() -> None:
    config = HttpConfig.model_validate({"tokens": [{"id": "a", "client_secret": "hush"}]})
    assert "hush" not in repr(config)
    assert "hush" not in config.model_dump_json()


def test_addresses_are_split() -> None:
    assert split_address("[::1]:80") == ("::1", 80)
    assert split_address("localhost:0") == ("localhost", 0)
