"""The collector described in OpenAPI 3.1, served at ``/openapi.json``: every endpoint, every status it can answer."""

from __future__ import annotations

from functools import cache

import orjson

from penstock import __version__
from penstock.sources.http.answers import Answer

_Part = dict[str, object]

_EVENT: _Part = {"type": "object", "description": "Any JSON object. It is kept byte for byte; see the enrichment."}
_ENVELOPE: _Part = {
    "type": "object",
    "description": "Events with a template whose fields fill what each event lacks; nested objects are merged.",
    "required": ["template", "events"],
    "additionalProperties": False,
    "properties": {"template": {"type": "object"}, "events": {"type": "array", "items": _EVENT}},
}
_SCHEMAS: _Part = {
    "Events": {"anyOf": [_EVENT, {"type": "array", "items": _EVENT}, _ENVELOPE]},
    "Accepted": {
        "type": "object",
        "required": ["status", "accepted"],
        "properties": {"status": {"const": "ok"}, "accepted": {"type": "integer", "minimum": 0}},
        "additionalProperties": False,
    },
    "AcceptedLines": {
        "type": "object",
        "required": ["status", "accepted", "malformed"],
        "properties": {
            "status": {"const": "ok"},
            "accepted": {"type": "integer", "minimum": 0},
            "malformed": {
                "type": "integer",
                "minimum": 0,
                "description": "Lines that are no JSON object or too long. They are kept too, as failed records.",
            },
        },
        "additionalProperties": False,
    },
    "Error": {
        "type": "object",
        "required": ["status", "code", "message"],
        "properties": {
            "status": {"const": "error"},
            "code": {"type": "string"},
            "message": {"type": "string"},
            "index": {"type": "integer", "minimum": 0, "description": "The event that is wrong, counted from 0."},
        },
        "additionalProperties": False,
    },
}
_STATUS_TEXTS = {
    400: "The body is empty, damaged, not JSON, or not made of objects.",
    401: "No token, an unknown one, or one of the wrong kind.",
    405: "Another method is wanted; see the Allow header.",
    408: "The body did not arrive in time.",
    413: "The body or an event in it is too large, or there are too many; `index` names the event.",
    415: "The Content-Encoding is not known.",
    500: "The collector failed; nothing was taken.",
    503: "Overloaded, disk full, starting or stopping. Nothing was taken; send it again after Retry-After.",
}
_SECURITY: list[_Part] = [{"query": []}, {"x_auth_token": []}, {"api_key": []}, {"basic": []}]
_SCHEMES: _Part = {
    "query": {"type": "apiKey", "in": "query", "name": "token"},
    "x_auth_token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"},
    "api_key": {"type": "apiKey", "in": "header", "name": "api_key"},
    "basic": {"type": "http", "scheme": "basic", "description": "The user is the secret; the password is not read."},
}


@cache
def answer() -> Answer:
    return Answer(200, [("content-type", "application/json")], orjson.dumps(document()))


def document() -> _Part:
    """The whole description."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock collector", "version": __version__},
        "components": {"schemas": _SCHEMAS, "securitySchemes": _SCHEMES},
        "paths": {
            "/api/v1/event": {"post": _post("js", "Events from browsers (client secret).", "js")},
            "/api/v1/events": {"post": _post("js_alias", "The same as /api/v1/event.", "js")},
            "/api/v1/s2s/event": {"post": _post("api", "Events from servers (server secret).", "api")},
            "/api/v1/s2s/events": {"post": _post("api_alias", "The same as /api/v1/s2s/event.", "api")},
            "/api/v1/events/bulk": {"post": _post("bulk", "One event per line (either secret).", "bulk")},
            "/healthz": {"get": _get("healthz", "The process answers.", "application/json")},
            "/readyz": {"get": _get("readyz", "Ready for events.", "application/json", 503)},
            "/metrics": {"get": _get("metrics", "Counters for Prometheus.", "text/plain")},
            "/openapi.json": {"get": _get("openapi", "This description.", "application/json")},
        },
    }


def _post(operation: str, summary: str, face: str) -> _Part:
    bulk = face == "bulk"
    events: _Part = {"schema": {"$ref": "#/components/schemas/Events"}}
    content: _Part = {"application/x-ndjson": {"schema": {"type": "string"}}} if bulk else {"application/json": events}
    taken = "AcceptedLines" if bulk else "Accepted"
    responses: _Part = {"200": _response("Everything is on disk.", f"#/components/schemas/{taken}")}
    for status, text in _STATUS_TEXTS.items():
        responses[str(status)] = _response(text, "#/components/schemas/Error", retry_after=status == 503)
    return {
        "operationId": operation,
        "summary": summary,
        "security": _SECURITY,
        "parameters": [
            {
                "name": "Content-Encoding",
                "in": "header",
                "required": False,
                "schema": {"enum": ["gzip", "zstd", "identity"]},
                "description": "How the body is packed.",
            }
        ],
        "requestBody": {"required": not bulk, "content": content},
        "responses": responses,
    }


def _get(operation: str, summary: str, media_type: str, *problems: int) -> _Part:
    schema: _Part = {"type": "string"} if media_type == "text/plain" else {"type": "object"}
    responses: _Part = {"200": {"description": summary, "content": {media_type: {"schema": schema}}}}
    for status in (*problems, 405, 500):
        responses[str(status)] = _response(
            _STATUS_TEXTS[status], "#/components/schemas/Error", retry_after=status == 503
        )
    return {"operationId": operation, "summary": summary, "responses": responses}


def _response(description: str, reference: str, retry_after: bool = False) -> _Part:
    response: _Part = {"description": description, "content": {"application/json": {"schema": {"$ref": reference}}}}
    if retry_after:
        response["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."}}
    return response
