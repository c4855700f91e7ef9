"""Compiles what reads bundles: each kind of body is given a few bytes to work on."""

from __future__ import annotations

from contextlib import suppress

from penstock.sources.http.body.body_events import BadBody
from penstock.sources.http.body.bundles import check_bundles, find_bundles
from penstock.sources.http.body.cloud_events import find_in_request
from penstock.sources.http.config import LimitsConfig


class _CloudEvent(dict[str, str]):
    """Headers that have each name once."""

    def get_all(self, key: str, /) -> list[str]:
        return [self[key]] if key in self else []


def warm_up() -> None:
    limits = LimitsConfig()
    one = b'{"source":"\\u0061","kind":"b","version":"0.1","data":{}}'
    for body in (one, b"[%b,1.5]" % one):
        # What is no object is explained by compiled code too.
        with suppress(BadBody):
            list(check_bundles(find_bundles(body, limits), None))
    headers = _CloudEvent({"ce-specversion": "1.0", "ce-id": "a", "ce-source": "b", "ce-type": "c"})
    list(check_bundles(find_in_request(headers, b"{}", limits), None))
