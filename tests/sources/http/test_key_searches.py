"""Who sends no token has the body searched for one: not too often in vain, and never at the cost of good keys."""

from __future__ import annotations

import gzip
import http.client
from collections.abc import Iterator
from contextlib import suppress

import pytest

from penstock.sources.http.access.key_searches import BACK_PER_SECOND, MOST_WAITING, PER_ADDRESS, KeySearches
from penstock.sources.http.body.segment_messages import KEY_PREFIX_BYTES
from penstock.sources.http.responses import Refused
from penstock.testing.waiting import HANG, eventually
from tests.sources.http.server import Running, collector

BAD, OTHER, GOOD, PROXY = "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def searches(clock: Clock) -> KeySearches:
    return KeySearches(lambda address: address == PROXY, clock)


def allowed(searches: KeySearches, address: str, tries: int) -> int:
    """How many of so many searches in vain are allowed."""
    done = 0
    for _ in range(tries):
        with suppress(Refused):
            searches.spend(address)
            done += 1
    return done


def test_an_address_has_an_allowance_that_comes_back(searches: KeySearches, clock: Clock) -> None:
    assert allowed(searches, BAD, 500) == PER_ADDRESS
    assert allowed(searches, OTHER, 1) == 1
    clock.now += 2
    assert allowed(searches, BAD, 500) == 2 * BACK_PER_SECOND
    clock.now += 3600
    assert allowed(searches, BAD, 500) == PER_ADDRESS


def test_a_good_key_frees_its_address(searches: KeySearches) -> None:
    assert allowed(searches, GOOD, PER_ADDRESS) == PER_ADDRESS
    searches.mark_good(GOOD)
    assert allowed(searches, GOOD, 500) == 500
    assert searches.wait_after_bad_key(GOOD) > 0


def test_good_keys_cost_nothing(searches: KeySearches) -> None:
    for _ in range(500):
        searches.spend(GOOD)
        searches.mark_good(GOOD)
    searches.spend(GOOD)
    assert searches.wait_after_bad_key(GOOD) == 0


def test_a_proxy_that_is_trusted_brings_everybody(searches: KeySearches) -> None:
    assert allowed(searches, PROXY, 500) == 500


def test_so_many_wait_and_those_with_a_good_key_beside_them(searches: KeySearches) -> None:
    searches.mark_good(GOOD)
    waiting = [searches.waiting(f"198.51.100.{number}") for number in range(MOST_WAITING)]
    for one in waiting:
        one.__enter__()
    with pytest.raises(Refused), searches.waiting(OTHER):
        pass
    with searches.waiting(GOOD):
        pass
    waiting[0].__exit__(None, None, None)
    with searches.waiting(OTHER):
        pass


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with collector(tmp_path_factory.mktemp("keys")) as running:
        yield running


def post(web: Running, address: str, body: bytes) -> http.client.HTTPResponse:
    client = http.client.HTTPConnection("127.0.0.1", web.port, timeout=HANG, source_address=(address, 0))
    try:
        client.request("POST", "/v1/batch", gzip.compress(body), {"Content-Encoding": "gzip"})
        answer = client.getresponse()
        answer.read()
        return answer
    finally:
        client.close()


KEYLESS = b"{" + b'"",' * 20_000
KEYED = b'{"batch":[{"type":"track"}],"writeKey":"public"}'


def test_who_searches_in_vain_is_refused_before_the_body_is_read_and_others_are_not(web: Running) -> None:
    def refusal() -> http.client.HTTPResponse | None:
        """Without a pause between them, in which the allowance would come back."""
        answers = (post(web, "127.0.0.2", KEYLESS) for _ in range(200))
        return next((answer for answer in answers if answer.status == 429), None)

    refused = eventually(refusal, "the end of the allowance")
    assert refused is not None
    assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
    assert post(web, "127.0.0.3", KEYED).status == 200
    # Later it may try again, and a good key ends the matter.
    eventually(lambda: post(web, "127.0.0.2", KEYED).status == 200, "something of the allowance")
    assert {post(web, "127.0.0.2", KEYLESS).status for _ in range(20)} == {401}
    assert post(web, "127.0.0.2", KEYED).status == 200


@pytest.mark.parametrize("size", [100, 10_000, 40_000, KEY_PREFIX_BYTES - 200])
def test_a_key_behind_the_messages_is_found(web: Running, size: int) -> None:
    """As some of Segment's libraries write it."""
    body = b'{"batch":[{"type":"track","event":"%b"}],"sentAt":"now","writeKey":"public"}' % (b"x" * (size // 10),)
    messages = b'{"type":"track","writeKey":"other"},' * (size * 9 // 10 // 36)
    assert post(web, "127.0.0.4", body.replace(b"[", b"[" + messages)).status == 200
