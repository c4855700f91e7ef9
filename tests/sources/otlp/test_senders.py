"""Who may send: tokens, where they are needed, and web pages."""

from __future__ import annotations

import base64
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from penstock.record import Header
from penstock.sources.otlp.config import OtlpConfig
from penstock.testing.waiting import HANG
from tests.sources.otlp.receiver import JSON, PROTOBUF, TOKENS, Running, receiver
from tests.sources.otlp.requests import traces

GOOD = traces().SerializeToString()
SHOP = "https://shop.example"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    tokens = [*TOKENS, {"id": "pages", "client_secret": "browser", "origins": [SHOP]}]
    with receiver(tmp_path_factory.mktemp("senders"), tokens=tokens) as running:
        yield running


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ({"Authorization": "Bearer private"}, "apps"),
        ({"Authorization": "bearer  public"}, "apps"),
        ({"X-Auth-Token": "private"}, "apps"),
        ({"api_key": "public"}, "apps"),
        ({"Authorization": "Basic " + base64.b64encode(b"browser:").decode()}, "pages"),
    ],
)
def test_a_token_opens_every_signal_and_is_named_in_the_record(
    source: Running, headers: dict[str, str], token: str
) -> None:
    before = len(source.records())
    assert source.post(GOOD, **headers).status_code == 200
    for signal in ("logs", "metrics"):
        assert source.post(b"{}", JSON, signal, **headers).status_code == 200
    (record,) = source.records()[before:]
    assert record.headers[Header.TOKEN] == token


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer nobody"},
        {"Authorization": "Bearer"},
        {"Authorization": "private"},
        {"Authorization": "Digest private"},
        {"X-Auth-Token": "Private"},
    ],
)
def test_without_a_good_token_it_is_401(source: Running, headers: dict[str, str]) -> None:
    before = len(source.records())
    answer = source.post(GOOD, JSON, **headers)
    assert (answer.status_code, answer.json()["code"]) == (401, 16)
    assert "token" in answer.json()["message"]
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert len(source.records()) == before


def test_a_bad_token_is_told_before_the_body_is_read(source: Running) -> None:
    with socket.create_connection(("127.0.0.1", source.port), timeout=HANG) as client:
        client.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer nobody\r\nContent-Length: 100000\r\n\r\n"
        )
        assert client.recv(1000).startswith(b"HTTP/1.1 401")


def test_a_page_of_a_known_origin_may_send_and_one_of_another_may_not(source: Running) -> None:
    browser = {**PROTOBUF, "Authorization": "Bearer browser"}
    preflight = {"Origin": SHOP, "Access-Control-Request-Method": "POST"}
    answer = source.http.options(f"{source.url}/v1/traces", headers=preflight)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (204, SHOP)
    assert "authorization" in answer.headers["access-control-allow-headers"]
    answer = source.post(GOOD, {**browser, "Origin": SHOP})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, SHOP)
    answer = source.post(GOOD, {**browser, "Origin": "https://evil.example"})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


def test_a_page_of_any_site_gets_nowhere_without_tokens(tmp_path: Path) -> None:
    with receiver(tmp_path) as source:
        answer: httpx.Response = source.http.options(f"{source.url}/v1/traces", headers={"Origin": SHOP})
        assert answer.status_code == 405
        assert source.post(GOOD, {"Content-Type": "text/plain", "Origin": SHOP}).status_code == 415


@pytest.mark.parametrize("address", ["127.0.0.1:4318", "127.8.9.1:1", "[::1]:4318", "localhost:4318"])
def test_tokens_are_optional_on_loopback(address: str) -> None:
    assert OtlpConfig(listen=address, grpc=address).token_ids is None


@pytest.mark.parametrize("address", ["0.0.0.0:4318", "[::]:4318", "10.0.0.1:4318", "otel.example:4318"])
def test_whoever_listens_to_others_needs_tokens(address: str) -> None:
    for option in ("listen", "grpc"):
        with pytest.raises(
            ValidationError, match=rf"`{option}` is .* no tokens: .* add tokens such as .* 127\.0\.0\.1"
        ):
            OtlpConfig.model_validate({option: address})
        known = OtlpConfig.model_validate({option: address, "tokens": TOKENS})
        assert known.token_ids == ["apps"]


def test_grpc_without_its_package_is_told_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ValidationError, match=r"grpcio, which is not installed; pip install 'penstock\[grpc\]'"):
        OtlpConfig(grpc="127.0.0.1:4317")
    assert OtlpConfig().grpc is None
