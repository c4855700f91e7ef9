"""The collector described in OpenAPI 3.1, served at ``/openapi.json``: every endpoint, every status it can answer.

Generated from the table of endpoints, so every path that answers is described.
"""

from __future__ import annotations

from functools import cache

import orjson

from penstock import __version__
from penstock.sources.http.access.cors import ALLOWED_HEADERS
from penstock.sources.http.access.endpoints import (
    API,
    BATCH,
    BULK,
    BUNDLES,
    ENDPOINTS,
    JS,
    MESSAGES,
    PIXEL,
    Endpoint,
    Shape,
)
from penstock.sources.http.openapi.body_schemas import SCHEMAS, Part, reference
from penstock.sources.http.responses import Answer

_SUMMARIES = {
    JS: "Events from browsers and apps, by client secret.",
    PIXEL: "An event in the address of an image, by client secret. Answers with a transparent pixel.",
    API: "Events from servers, by server secret.",
    BULK: "One event per line, by either secret.",
    BUNDLES: "Bundles of state, by server secret; a CloudEvent may also have its attributes in headers ce-*.",
    BATCH: "Segment's messages, many at once, by either secret.",
    **{
        endpoint: f"One of Segment's messages, of type {kind}, by either secret." for kind, endpoint in MESSAGES.items()
    },
}
_STATUS_TEXTS = {
    400: "The request cannot be read: its body is empty, damaged, not JSON or not made of objects.",
    401: "No token, an unknown one, or one of the wrong kind.",
    403: "The token does not take events from pages of this origin.",
    405: "Another method is wanted; see the Allow header.",
    408: "The body did not arrive in time.",
    413: "The body or an event in it is too large, or there are too many; `index` names the event.",
    415: "The Content-Encoding is not known, or a format of CloudEvents.",
    429: "Too many requests without a token. Nothing was taken; send it again after Retry-After.",
    500: "The collector failed; nothing was stored.",
    503: "Overloaded, disk full, starting or stopping. Nothing was taken; send it again after Retry-After.",
}
_WITHOUT_BODY = (408, 415)
_KEY_IN_BODY = 429
_RETRY = (429, 503)
_BARE_STATUS_TEXTS = {414: "The address is too long.", 431: "The headers are too large."}
_SECURITY: list[Part] = [{"query": []}, {"x_auth_token": []}, {"api_key": []}, {"basic": []}]
_SCHEMES: Part = {
    "query": {"type": "apiKey", "in": "query", "name": "token"},
    "x_auth_token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"},
    "api_key": {"type": "apiKey", "in": "header", "name": "api_key"},
    "basic": {"type": "http", "scheme": "basic", "description": "The user is the secret; the password is not read."},
}


@cache
def answer() -> Answer:
    return Answer(200, [("content-type", "application/json")], orjson.dumps(document()))


def document() -> Part:
    first: dict[Endpoint, str] = {}
    for path, endpoint in ENDPOINTS.items():
        first.setdefault(endpoint, path)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock collector", "version": __version__},
        "components": {"schemas": SCHEMAS, "securitySchemes": _SCHEMES},
        "paths": {
            **{path: _operation(path, endpoint, first[endpoint]) for path, endpoint in ENDPOINTS.items()},
            "/healthz": {"get": _page("healthz", "The process answers.")},
            "/readyz": {"get": _page("readyz", "Ready for events.", 503)},
            "/openapi.json": {"get": _page("openapi", "This description.")},
        },
    }


def _operation(path: str, endpoint: Endpoint, first: str) -> Part:
    name = path.strip("/").replace("/", "_").replace(".", "_")
    pixel = endpoint.shape is Shape.PIXEL
    operation: Part = {
        "operationId": name,
        "summary": _SUMMARIES[endpoint] if path == first else f"The same as {first}.",
        # Segment's libraries may also put the secret into the body.
        "security": [*_SECURITY, {}] if endpoint.key_in_body else _SECURITY,
        "parameters": [*(_PIXEL_PARAMETERS if pixel else _BODY_PARAMETERS), *([_ORIGIN] if endpoint.browser else [])],
        "responses": {"200": _taken(endpoint)},
    }
    if not pixel:
        operation["requestBody"] = {"required": True, "content": _content(endpoint)}
    responses = operation["responses"]
    assert isinstance(responses, dict)
    for status, text in _STATUS_TEXTS.items():
        if not (pixel and status in _WITHOUT_BODY) and (endpoint.key_in_body or status != _KEY_IN_BODY):
            responses[str(status)] = _error(text, retry_after=status in _RETRY)
    responses |= {str(status): {"description": text} for status, text in _BARE_STATUS_TEXTS.items()}
    operations: Part = {endpoint.method.lower(): operation}
    if endpoint.browser:
        operations["options"] = _preflight(f"{name}_preflight")
    return operations


def _content(endpoint: Endpoint) -> Part:
    match endpoint.shape:
        case Shape.LINES:
            form: Part = {
                "type": "object",
                "required": ["file"],
                "properties": {"file": {"type": "string", "description": "NDJSON; several files are read in turn."}},
            }
            lines: Part = {"type": "string", "minLength": 1, "description": "A JSON object per line."}
            return {"application/x-ndjson": {"schema": lines}, "multipart/form-data": {"schema": form}}
        case Shape.BUNDLES:
            return {
                **_json(reference("Bundles")),
                "application/cloudevents+json": {"schema": reference("CloudEvent")},
                "application/cloudevents-batch+json": {"schema": reference("CloudEvents")},
            }
        case Shape.MESSAGE:
            return _json(reference("Message"))
        case Shape.BATCH:
            return _json(reference("Batch"))
        case _:
            return _json(reference("Events"))


def _json(schema: Part) -> Part:
    return {"application/json": {"schema": schema}}


def _taken(endpoint: Endpoint) -> Part:
    response: Part = {"description": "Everything is on disk."}
    match endpoint.shape:
        case Shape.PIXEL:
            response["content"] = {"image/gif": {"schema": {"type": "string", "contentMediaType": "image/gif"}}}
        case Shape.LINES:
            response["content"] = _json(reference("AcceptedLines"))
        case Shape.BUNDLES:
            response["content"] = _json(reference("AcceptedBundles"))
        case _:
            response["content"] = _json(reference("Accepted"))
    if endpoint.browser:
        response["headers"] = _CORS_HEADERS
    return response


def _preflight(operation: str) -> Part:
    return {
        "operationId": operation,
        "summary": "A browser asks whether a page may send here. A token in the query decides, else any token may.",
        "parameters": [{"name": "token", "in": "query", "required": False, "schema": {"type": "string"}}, _ORIGIN],
        "responses": {
            "204": {
                "description": "With CORS headers if the origin is allowed, without them if it is not.",
                "headers": {
                    **_CORS_HEADERS,
                    "Access-Control-Allow-Methods": {"schema": {"type": "string"}},
                    "Access-Control-Allow-Headers": {"schema": {"type": "string"}, "description": ALLOWED_HEADERS},
                    "Access-Control-Max-Age": {"schema": {"type": "integer"}},
                },
            },
            "500": _error(_STATUS_TEXTS[500]),
            **{str(status): {"description": text} for status, text in _BARE_STATUS_TEXTS.items()},
        },
    }


def _page(operation: str, summary: str, *problems: int) -> Part:
    responses: Part = {"200": {"description": summary, "content": _json({"type": "object"})}}
    for status in (*problems, 405, 500):
        responses[str(status)] = _error(_STATUS_TEXTS[status], retry_after=status in _RETRY)
    return {"operationId": operation, "summary": summary, "responses": responses}


def _error(description: str, retry_after: bool = False) -> Part:
    response: Part = {"description": description, "content": _json(reference("Error"))}
    if retry_after:
        response["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."}}
    return response


def _parameter(name: str, place: str, description: str, schema: Part, **more: object) -> Part:
    about: Part = {"name": name, "in": place, "required": False, "schema": schema, "description": description}
    return about | more


_ORIGIN = _parameter("Origin", "header", "Set by browsers: the site whose page sends.", {"type": "string"})
_BODY_PARAMETERS = [
    _parameter("Content-Encoding", "header", "How the body is packed.", {"enum": ["gzip", "zstd", "identity"]})
]
_PIXEL_PARAMETERS = [
    _parameter(
        "data",
        "query",
        "An event: a JSON object in standard or URL-safe base64, padded or not.",
        {"type": "string", "contentEncoding": "base64", "contentMediaType": "application/json"},
    ),
    _parameter(
        "fields",
        "query",
        "Any other parameter is a string at a path, dots between the keys, and is put over `data`.",
        {"type": "object", "additionalProperties": {"type": "string"}},
        style="form",
        explode=True,
    ),
]
_CORS_HEADERS: Part = {
    "Access-Control-Allow-Origin": {
        "schema": {"type": "string"},
        "description": "The request's Origin, if the token allows it; else not there.",
    },
    "Vary": {"schema": {"type": "string"}, "description": "Names Origin, if any token has origins."},
}
