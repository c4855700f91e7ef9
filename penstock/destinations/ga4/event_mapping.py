"""Maps a record to an event of the measurement protocol, or finds the rule that it breaks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from penstock.destinations.ga4 import limits
from penstock.destinations.ga4.config import Ga4Config
from penstock.destinations.sending.verbatim_json import WrittenNumber, dumps, loads
from penstock.json.paths import Path, parse_path

COLLECTORS = frozenset(("_timestamp", "source_ip", "api_key", "src", "eventn_ctx"))
"""Fields that the collector adds to events. Google Analytics must not be sent IP addresses."""
_UNFIT = re.compile(r"[^A-Za-z0-9_]", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_DEPTH = 100
_ROOM = 1_000
"""Bytes for what surrounds an event in a request."""


class BrokenRule(Exception):
    """A rule that a record breaks: its code, and what is wrong."""

    def __init__(self, code: str, message: str) -> None:
        # The message may quote what is no text.
        message = message.encode(errors="backslashreplace").decode()
        super().__init__(code, message)
        self.code = code
        self.message = message


_TOO_DEEP = BrokenRule("depth", f"its values are nested more than {_MAX_DEPTH} deep")


@dataclass(frozen=True)
class Event:
    """What a request says about one record, and whose event it is."""

    name: str
    params: Mapping[str, Any]
    micros: int
    client_id: str | None
    user_id: str | None
    properties: Mapping[str, Any]

    @property
    def owner(self) -> tuple[str | None, str | None, str]:
        """Events of one owner can share a request."""
        return self.client_id, self.user_id, dumps(self.properties)

    def body(self) -> dict[str, Any]:
        return {"name": self.name, "timestamp_micros": self.micros, "params": dict(self.params)}


class Mapper:
    """Makes events as a config says."""

    def __init__(self, config: Ga4Config) -> None:
        self._config = config
        self._client_id = _path(config.client_id)
        self._user_id = _path(config.user_id)
        self._timestamp = parse_path(config.timestamp)
        self._params = None if config.params is None else [parse_path(path) for path in config.params]
        self._properties = {name: parse_path(path) for name, path in config.user_properties.items()}

    def event(self, data: bytes, came: datetime) -> Event | None:
        """``None`` for a record without a name. There is room for its id in it. Raises ``BrokenRule``."""
        document = _parsed(data)
        name = self._name(document)
        if not name:
            return None
        _require("event_name", limits.event_name(name))
        client_id, user_id = _id(document, self._client_id), _id(document, self._user_id)
        if client_id is None and user_id is None:
            raise BrokenRule("client_id", "it has neither a client id nor a user id")
        if user_id is not None and len(user_id) > limits.MAX_USER_ID:
            raise BrokenRule("user_id", f"the user id has {len(user_id)} characters; {limits.MAX_USER_ID} are allowed")
        params = self._fitting_params(document)
        properties = {}
        for key, path in self._properties.items():
            value = _scalar(_at(document, path))
            if value is not None:
                _require("user_property", limits.property_value(key, value))
                properties[key] = {"value": value}
        event = Event(name, params, self._micros(document, came), client_id, user_id, properties)
        size = len(_json(event.body())) + len(_json(event.owner)) + _ROOM
        if size > limits.MAX_BODY:
            raise BrokenRule("body", f"it makes a request of {size} bytes; {limits.MAX_BODY} are allowed")
        return event

    @cached_property
    def _template(self) -> Any:
        from penstock.destinations.sql.stage.template import EventTemplate

        return EventTemplate(self._config.event_name)

    def _name(self, document: Mapping[str, Any]) -> str:
        if "{" not in self._config.event_name:
            return self._config.event_name
        try:
            return str(self._template.render(document)).strip()
        except Exception as error:  # whatever a template raises is caused by this record's values
            raise BrokenRule("event_name", f"the template of its name failed: {str(error)[:200]}") from error

    def _fitting_params(self, document: Mapping[str, Any]) -> dict[str, Any]:
        params = self._fitting(self._fields(document))
        if self._config.id_param in params:
            raise BrokenRule("param_name", f"its own parameter '{self._config.id_param}' is the name of id_param")
        _require("params", limits.param_count(len(params) + (self._config.id_param is not None)))
        return params

    def _fitting(self, fields: Iterable[tuple[Path, Any]]) -> dict[str, Any]:
        """Parameters of an event, or of one of its items, each of which keeps the rules."""
        params: dict[str, Any] = {}
        for path, value in fields:
            if value is None:
                continue
            name = _UNFIT.sub("_", "_".join(path))
            if name in params:
                raise BrokenRule("param_name", f"two of its fields make the parameter '{name[:80]}'")
            _require("param_name", limits.param_name(name))
            if isinstance(value, list):
                _require("items", limits.item_count(len(value)))
                params[name] = [self._fitting_item(item) for item in value]
            else:
                _require("param_value", limits.param_value(name, value, self._config.max_value))
                params[name] = value
        return params

    def _fitting_item(self, item: Mapping[str, Any]) -> dict[str, Any]:
        params = self._fitting(((key,), _scalar(value)) for key, value in item.items())
        _require("items", limits.item_params(params))
        return params

    def _fields(self, document: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
        if self._params is not None:
            for path in self._params:
                yield from _leaves(path, _at(document, path))
            return
        named = {self._client_id, self._user_id, self._timestamp, *self._properties.values()}
        for key, value in document.items():
            if key not in COLLECTORS:
                yield from ((path, leaf) for path, leaf in _leaves((key,), value) if path not in named)

    def _micros(self, document: Mapping[str, Any], came: datetime) -> int:
        value = _at(document, self._timestamp)
        time = came
        if value is not None:
            try:
                time = datetime.fromisoformat(str(value))
            except ValueError:
                raise BrokenRule("timestamp", f"'{str(value)[:80]}' is no time such as 2026-01-31T12:00:00Z") from None
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return (time - _EPOCH) // timedelta(microseconds=1)


def _parsed(data: bytes) -> Mapping[str, Any]:
    try:
        document = loads(data)
    except ValueError as error:
        raise BrokenRule("not_json", f"not JSON: {error}") from None
    except RecursionError:
        raise _TOO_DEEP from None
    if not isinstance(document, dict):
        raise BrokenRule("not_json", "not a JSON object")
    # Few have so many brackets. Whatever walks through a value later has a stack of its own.
    if data.count(b"{") + data.count(b"[") > _MAX_DEPTH and _depth(document) > _MAX_DEPTH:
        raise _TOO_DEEP
    return document


def _json(value: Any) -> bytes:
    """As a request has it. One event that cannot be read makes Google Analytics drop all that share its request."""
    try:
        return dumps(value).encode()
    except UnicodeEncodeError:
        raise BrokenRule("text", "it has text with half of a surrogate pair, which no request can carry") from None
    except ValueError:
        raise BrokenRule("number", "it has a number that is too large for a double") from None


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [
        inner
        for each in level
        if isinstance(each, (dict, list))
        for inner in (each.values() if isinstance(each, dict) else each)
    ]:
        depth += 1
    return depth


def _require(code: str, wrong: str | None) -> None:
    if wrong is not None:
        raise BrokenRule(code, wrong)


def _path(text: str | None) -> Path | None:
    return None if text is None else parse_path(text)


def _at(document: Any, path: Path) -> Any:
    for key in path:
        if not isinstance(document, dict) or key not in document:
            return None
        document = document[key]
    return document


def _id(document: Mapping[str, Any], path: Path | None) -> str | None:
    value = None if path is None else _at(document, path)
    if value is None or isinstance(value, (dict, list, bool)) or not str(value).strip():
        return None
    return value if isinstance(value, str) else _json(value).decode()


def _leaves(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves((*path, key), inner)
    elif path == ("items",) and isinstance(value, list) and all(isinstance(item, dict) for item in value):
        yield path, value
    else:
        yield path, _scalar(value)


def _scalar(value: Any) -> Any:
    """Only text and numbers that can be sent are allowed: a boolean becomes text, a nested value JSON text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        return _json(value).decode()
    if isinstance(value, WrittenNumber):
        _json(value)
    return value
