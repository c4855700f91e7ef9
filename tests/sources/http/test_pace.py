"""Where a body is worked on, by what it may cost."""

from __future__ import annotations

import pytest

from penstock.sources.http.access.endpoints import Shape
from penstock.sources.http.body.pace import Pace, pace


@pytest.mark.parametrize("key", [b"template", b"t\\u0065mplate", b"\\u0074emplate"])
def test_a_template_is_never_filled_in_by_the_event_loop_however_its_key_is_written(key: bytes) -> None:
    body = b'{"%b":{"a":"%b"},"events":[%b]}' % (key, b"x" * 30_000, b",".join([b"{}"] * 200))
    assert pace(Shape.EVENTS, body, form=False) is not Pace.AT_ONCE


@pytest.mark.parametrize("body", [b'{"name":"Zo\\u00eb"}', b'[{"n":1},{"n":2}]'])
def test_a_small_body_is_worked_on_at_once(body: bytes) -> None:
    assert pace(Shape.EVENTS, body, form=False) is Pace.AT_ONCE
