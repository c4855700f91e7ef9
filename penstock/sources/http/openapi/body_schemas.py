"""The bodies that come in and go out, as JSON Schema for the description of the collector."""

from __future__ import annotations

Part = dict[str, object]
"""A piece of the description: JSON, as OpenAPI wants it."""


def reference(name: str) -> Part:
    """The schema of that name."""
    return {"$ref": f"#/components/schemas/{name}"}


def _described(**texts: str) -> Part:
    return {name: {"description": text} for name, text in texts.items()}


def _closed(required: Part, **optional: object) -> Part:
    """An object with these members and no others."""
    members = {"required": [*required], "properties": required | optional}
    return {"type": "object", **members, "additionalProperties": False}


_COUNT: Part = {"type": "integer", "minimum": 0}
_MESSAGE_FIELDS = _described(
    type="track, page, identify, group, alias or screen; a single call takes it from its path.",
    messageId="The event's id, if it is a string and the message brings no eventn_ctx.event_id.",
    writeKey="The secret, if it is not in the request's head. It is not stored.",
    context="An object about the circumstances; merged with that of the batch.",
    integrations="Merged with that of the batch.",
    sentAt="When the library sent it; a batch gives its own to messages that have none.",
)

SCHEMAS: Part = {
    "Event": {"type": "object", "description": "Any JSON object. It is kept byte for byte; see the enrichment."},
    "Events": {
        "anyOf": [reference("Event"), {"type": "array", "items": reference("Event")}, reference("TemplatedEvents")]
    },
    "TemplatedEvents": {
        **_closed({"template": {"type": "object"}, "events": {"type": "array", "items": reference("Event")}}),
        "description": "Events with a template whose fields fill what each event lacks; nested objects are merged.",
    },
    "Message": {
        "type": "object",
        "description": "A message as Segment's libraries send it. It is kept as it is, whatever its fields hold.",
        "properties": _MESSAGE_FIELDS,
    },
    "Batch": {
        "type": "object",
        "description": "Messages, with what they share.",
        "required": ["batch"],
        "properties": {
            "batch": {"type": "array", "items": reference("Message")},
            **{key: _MESSAGE_FIELDS[key] for key in ("writeKey", "context", "integrations", "sentAt")},
        },
    },
    "Accepted": _closed({"status": {"const": "ok"}, "accepted": _COUNT}),
    "AcceptedLines": _closed(
        {
            "status": {"const": "ok"},
            "accepted": _COUNT,
            "malformed": {
                **_COUNT,
                "description": "Lines that are no JSON object or too long. They are kept too, as failed records.",
            },
        }
    ),
    "Error": _closed(
        {"status": {"const": "error"}, "code": {"type": "string"}, "message": {"type": "string"}},
        index={**_COUNT, "description": "The event that is wrong, counted from 0."},
    ),
}
