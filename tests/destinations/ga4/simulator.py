"""A Google Analytics that is as strict as its validation server: it takes what that would take, and remembers it.

Written from the protocol's reference and not from the destination's rules, so that the two check each other.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

SECRET, STREAM = "s3cret-api", "G-TEST12345"
_RESERVED = frozenset((
    "ad_activeview", "ad_click", "ad_exposure", "ad_query", "ad_reward", "adunit_exposure", "app_background",
    "app_clear_data", "app_exception", "app_remove", "app_store_refund", "app_store_subscription_cancel",
    "app_store_subscription_convert", "app_store_subscription_renew", "app_update", "app_upgrade",
    "dynamic_link_app_open", "dynamic_link_app_update", "dynamic_link_first_open", "error", "first_open", "first_visit",
    "in_app_purchase", "notification_dismiss", "notification_foreground", "notification_open", "notification_receive",
    "os_update", "screen_view", "session_start", "user_engagement",
))  # fmt: skip

_KNOWN_OF_ITEMS = frozenset((
    "item_id", "item_name", "affiliation", "coupon", "creative_name", "creative_slot", "currency", "discount", "index",
    "item_brand", "item_category", "item_category2", "item_category3", "item_category4", "item_category5",
    "item_list_id", "item_list_name", "item_variant", "location_id", "price", "promotion_id", "promotion_name",
    "quantity",
))  # fmt: skip


@dataclass
class GoogleAnalytics:
    events: list[dict[str, Any]] = field(default_factory=list)
    """What was collected, each with who it is about."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    """The requests as they were sent."""
    dropped: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """What breaks a rule: answered with 204 like everything, and gone."""
    answers: list[int | None] = field(default_factory=list)
    """What to answer to the next events instead of taking them. None: take it; 0: and hang up without an answer."""
    port: int = 0
    validates: bool = True
    """Whether it has a validation server."""
    ahead: float = 0.0
    """Seconds by which its clock is ahead of this machine's."""

    def now(self) -> float:
        return time.time() + self.ahead

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def problem(body: Any, size: int, now: float | None = None) -> tuple[str, str] | None:
    """What the validation server would say first: code and description."""
    micros_now = int((time.time() if now is None else now) * 1_000_000)
    if size > 130_000:
        return "VALUE_OUT_OF_BOUNDS", f"body has {size} bytes"
    if not isinstance(body, dict) or not (body.get("client_id") or body.get("user_id")):
        return "VALUE_REQUIRED", "client_id is required"
    events = body.get("events")
    if not isinstance(events, list) or not 1 <= len(events) <= 25:
        return "EXCEEDED_MAX_ENTITIES", "between 1 and 25 events"
    properties = body.get("user_properties", {})
    if len(properties) > 25:
        return "EXCEEDED_MAX_ENTITIES", "user properties"
    for name, held in properties.items():
        if _bad_name(name, 24) or len(str(held["value"])) > 36:
            return "VALUE_INVALID", f"user property {name}"
    for event in events:
        if _bad_name(event["name"], 40):
            return "NAME_INVALID", f"event name {event['name']}"
        if event["name"] in _RESERVED:
            return "NAME_RESERVED", f"event name {event['name']}"
        micros = event.get("timestamp_micros", micros_now)
        if not isinstance(micros, int) or not 0 <= micros_now - micros <= 72 * 3_600_000_000:
            return "VALUE_OUT_OF_BOUNDS", "timestamp_micros"
        if len(event["params"]) > 25:
            return "EXCEEDED_MAX_ENTITIES", "params"
        for name, value in event["params"].items():
            longest = {"page_location": 1000, "page_referrer": 420, "page_title": 300}.get(name, 100)
            if _bad_name(name, 40):
                return "NAME_INVALID", f"param {name}"
            if name == "items" and isinstance(value, list):
                wrong = _item_problem(value)
                if wrong is not None:
                    return wrong
            elif _bad_value(value, longest):
                return "VALUE_INVALID", f"param {name}"
    return None


def _item_problem(items: list[Any]) -> tuple[str, str] | None:
    if len(items) > 200:
        return "EXCEEDED_MAX_ENTITIES", "items"
    for item in items:
        if not isinstance(item, dict) or len(item.keys() - _KNOWN_OF_ITEMS) > 27:
            return "VALUE_INVALID", "item"
        for name, value in item.items():
            if _bad_name(name, 40) or _bad_value(value, 100):
                return "VALUE_INVALID", f"item param {name}"
    return None


def _bad_value(value: Any, longest: int) -> bool:
    return not isinstance(value, (str, int, float)) or isinstance(value, bool) or len(str(value)) > longest


def read(raw: bytes) -> Any:
    """The JSON of a request. Raises ``ValueError``."""
    return json.loads(raw, parse_constant=_finite, parse_float=_finite, parse_int=_finite)


def _finite(text: str) -> int | float:
    """A number of JSON that a double can hold; whatever else is no request that Google can read."""
    if not math.isfinite(float(text)):
        raise ValueError(f"no number: {text[:40]}")
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _bad_name(name: str, longest: int) -> bool:
    reserved = name.startswith(("_", "firebase_", "ga_", "google_", "gtag."))
    return reserved or len(name) > longest or re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_]*", name, re.ASCII) is None


@contextmanager
def google_analytics() -> Iterator[GoogleAnalytics]:
    service = GoogleAnalytics()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            where = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            status = service.answers.pop(0) if service.answers and where.path == "/mp/collect" else None
            if status:
                self._answer(status)
                return
            query = {key: values[0] for key, values in parse_qs(where.query).items()}
            assert self.headers["Content-Type"] == "application/json"
            try:
                body = read(raw)
                wrong = problem(body, len(raw), service.now())
            except ValueError as error:
                body, wrong = {}, ("VALUE_INVALID", f"not JSON: {error}")
            if where.path == "/debug/mp/collect" and not service.validates:
                self._answer(404)
                return
            if where.path == "/debug/mp/collect":
                messages = [] if wrong is None else [{"validationCode": wrong[0], "description": wrong[1]}]
                self._answer(200, json.dumps({"validationMessages": messages}).encode())
                return
            assert where.path == "/mp/collect"
            if query == {"measurement_id": STREAM, "api_secret": SECRET}:
                if wrong is None:
                    service.requests.append(body)
                    service.bodies.append(raw)
                    owner = {key: body.get(key) for key in ("client_id", "user_id", "user_properties")}
                    service.events += [{**owner, **event} for event in body["events"]]
                else:
                    service.dropped.append((wrong[1], body))
            if status == 0:
                self.close_connection = True
                return
            self._answer(204)

        def _answer(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string(int(service.now()))

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    service.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
