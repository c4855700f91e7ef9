"""Web pages of other sites: who may send, and what their browsers are told."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from penstock.sources.http.access.origins import Origins, checked_origin
from tests.sources.http.server import Running, collector

SHOP, STRANGER = "https://shop.example", "https://evil.example"
TOKENS = [
    {"id": "shop", "client_secret": "shop-key", "server_secret": "shop-server", "origins": [SHOP, "*.cdn.example"]},
    {"id": "blog", "client_secret": "blog-key", "origins": ["https://blog.example"]},
    {"id": "app", "client_secret": "app-key"},
]
JS, PIXEL, TRACK, BULK = "/api/v1/event", "/api/v1/p.gif", "/v1/track", "/api/v1/events/bulk"


@pytest.mark.parametrize(
    ("entry", "origin", "allowed"),
    [
        ("https://shop.example", "https://shop.example", True),
        ("https://shop.example", "https://SHOP.example", True),
        ("HTTPS://Shop.Example:443", "https://shop.example", True),
        ("http://shop.example:80", "http://shop.example", True),
        ("https://shop.example", "http://shop.example", False),
        ("https://shop.example", "https://shop.example:8443", False),
        ("https://shop.example", "https://shop.example.evil.example", False),
        ("https://shop.example:8443", "https://shop.example:8443", True),
        ("shop.example", "https://shop.example", True),
        ("shop.example", "http://shop.example:3000", True),
        ("shop.example", "https://a.shop.example", False),
        ("localhost:3000", "http://localhost:3000", True),
        ("localhost:3000", "http://localhost:3001", False),
        ("*.shop.example", "https://a.shop.example", True),
        ("*.shop.example", "http://a.b.shop.example:81", True),
        ("*.shop.example", "https://shop.example", False),
        ("*.shop.example", "https://evilshop.example", False),
        ("*.shop.example", "https://a.shop.example.evil.example", False),
        ("https://*.shop.example", "https://a.shop.example", True),
        ("https://*.shop.example", "http://a.shop.example", False),
        ("http://[::1]:3000", "http://[::1]:3000", True),
        ("http://[::1]", "http://[::1]", True),
        ("app://pages", "app://pages", True),
        ("*", "https://anything.example", True),
        ("*", "null", True),
        ("null", "null", True),
        ("shop.example", "null", False),
        ("shop.example", "", False),
        ("shop.example", "shop.example", True),
    ],
)
def test_entries_allow_what_they_say(entry: str, origin: str, allowed: bool) -> None:
    assert Origins([checked_origin(entry)]).allow(origin) is allowed


@pytest.mark.parametrize(
    "entry", ["", "https://", "https://shop.example/", "a b", "*shop.example", "sh*p.example", "*."]
)
def test_what_could_never_match_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="no web origin"):
        checked_origin(entry)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with collector(tmp_path_factory.mktemp("cors"), tokens=TOKENS) as running:
        yield running


def send(web: Running, path: str, secret: str | None, origin: str | None) -> httpx.Response:
    headers = {} if origin is None else {"Origin": origin}
    query = "" if secret is None else f"?token={secret}"
    method = "GET" if path == PIXEL else "POST"
    return web.http.request(method, f"{web.url}{path}{query}", headers=headers, content=b"" if path == PIXEL else b"{}")


def opened(answer: httpx.Response) -> str | None:
    return answer.headers.get("access-control-allow-origin")


@pytest.mark.parametrize("path", [JS, PIXEL, TRACK])
@pytest.mark.parametrize(
    ("secret", "origin", "status", "echoed"),
    [
        ("shop-key", SHOP, 200, True),
        ("shop-key", "http://img.cdn.example", 200, True),
        ("shop-key", STRANGER, 403, False),
        ("shop-key", "https://blog.example", 403, False),
        ("shop-key", "null", 403, False),
        ("shop-key", None, 200, False),
        ("app-key", STRANGER, 200, False),
        ("unknown", SHOP, 401, True),
        ("unknown", STRANGER, 401, False),
        (None, SHOP, 401, True),
    ],
)
def test_the_origin_is_echoed_if_the_token_allows_it(
    web: Running, path: str, secret: str | None, origin: str | None, status: int, echoed: bool
) -> None:
    before = web.tail()
    answer = send(web, path, secret, origin)
    assert answer.status_code == status
    assert opened(answer) == (origin if echoed else None)
    assert ("origin" in answer.headers.get("vary", "")) == (origin is not None)
    assert len(web.since(before)) == (1 if status == 200 else 0)
    if status == 403:
        assert answer.json()["code"] == "origin_not_allowed"


@pytest.mark.parametrize(("origin", "status"), [(SHOP, 200), (STRANGER, 403), (None, 200)])
def test_bulk_is_closed_to_foreign_pages_too_and_speaks_no_cors(web: Running, origin: str | None, status: int) -> None:
    answer = send(web, BULK, "shop-key", origin)
    assert (answer.status_code, opened(answer)) == (status, None)


def test_a_server_secret_is_not_bound_to_origins_and_not_told_to_pages(web: Running) -> None:
    answer = send(web, TRACK, "shop-server", STRANGER)
    assert (answer.status_code, opened(answer)) == (200, None)
    refused = send(web, JS, "shop-server", SHOP)
    assert (refused.status_code, refused.json()["code"]) == (401, "server_token")


def test_a_page_can_read_why_its_event_was_refused(web: Running) -> None:
    answer = web.post(JS, b"nonsense", {"X-Auth-Token": "shop-key", "Origin": SHOP})
    assert (answer.status_code, opened(answer)) == (400, SHOP)


def test_segments_key_in_the_body_is_bound_to_origins(web: Running) -> None:
    body = json.dumps({"writeKey": "shop-key", "event": "x"})
    assert web.post(TRACK, body, {"Origin": STRANGER}).status_code == 403
    assert opened(web.post(TRACK, body, {"Origin": SHOP})) == SHOP


@pytest.mark.parametrize("path", [JS, "/api/v1/events", PIXEL, TRACK, "/v1/batch"])
@pytest.mark.parametrize(
    ("origin", "query", "allowed"),
    [
        (SHOP, "", True),
        ("https://blog.example", "", True),
        (STRANGER, "", False),
        (SHOP, "?token=shop-key", True),
        (SHOP, "?token=blog-key", False),
        (SHOP, "?token=app-key", False),
        (SHOP, "?token=unknown", False),
        (None, "", False),
    ],
)
def test_a_preflight_is_answered(web: Running, path: str, origin: str | None, query: str, allowed: bool) -> None:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,x-auth-token"}
    headers = asked if origin is None else {**asked, "Origin": origin}
    before = web.tail()
    answer = web.http.options(f"{web.url}{path}{query}", headers=headers)
    assert (answer.status_code, answer.content) == (204, b"")
    method = "GET" if path == PIXEL else "POST"
    assert method in answer.headers["allow"]
    assert "origin" in answer.headers["vary"]
    assert opened(answer) == (origin if allowed else None)
    if allowed:
        assert method in answer.headers["access-control-allow-methods"]
        assert {"content-type", "x-auth-token"} <= set(answer.headers["access-control-allow-headers"].split(", "))
        assert int(answer.headers["access-control-max-age"]) > 0
    assert web.since(before) == []


def test_without_origins_there_is_no_cors_at_all(tmp_path_factory: pytest.TempPathFactory) -> None:
    with collector(tmp_path_factory.mktemp("plain")) as web:
        answer = send(web, JS, "public", SHOP)
        assert answer.status_code == 200
        preflight = web.http.options(web.url + JS, headers={"Origin": SHOP, "Access-Control-Request-Method": "POST"})
        assert preflight.status_code == 204
        for each in (answer, preflight):
            assert not [name for name in each.headers if name.startswith("access-control") or name == "vary"]
