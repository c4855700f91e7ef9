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


def _version(description: str) -> Part:
    return {"type": "string", "pattern": "^[0-9]{1,18}\\.[0-9]{1,18}$", "description": description}


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
    "Bundle": {
        "type": "object",
        "description": "The state of one kind of things, as a source reports it.",
        "required": ["source", "kind", "version", "data"],
        "properties": {
            "source": {"type": "string", "minLength": 1, "description": "Whose state it is."},
            "kind": {"type": "string", "minLength": 1, "description": "What it is the state of."},
            "version": _version("incarnation.generation: higher is newer."),
            "depends_on": _version("The version of another kind that must be there before it."),
            "base": _version("Of changes: the version of what they change."),
            "data": {"description": "Any JSON. It is kept byte for byte."},
        },
    },
    "Bundles": {"anyOf": [reference("Bundle"), {"type": "array", "items": reference("Bundle")}]},
    "CloudEvent": {
        "type": "object",
        "description": "A bundle as a CloudEvent.",
        "required": ["specversion", "id", "source", "type", "version"],
        "properties": {
            "specversion": {"const": "1.0"},
            "id": {"type": "string", "minLength": 1},
            "source": {"type": "string", "minLength": 1, "description": "Whose state it is."},
            "type": {"type": "string", "minLength": 1, "description": "The kind."},
            "version": _version("incarnation.generation: higher is newer. Also as bundleversion."),
            "dependson": _version("The version of another kind that must be there before it."),
            "base": _version("Of changes: the version of what they change."),
            "data": {"description": "Any JSON. It is kept byte for byte."},
            "data_base64": {"type": "string", "contentEncoding": "base64", "description": "Instead of data."},
        },
    },
    "CloudEvents": {"type": "array", "items": reference("CloudEvent")},
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
    "AcceptedBundles": _closed(
        {"status": {"const": "ok"}, "accepted": _COUNT},
        malformed={
            **_COUNT,
            "description": "Bundles that lack something, or are of a source that the token may not speak for. They are"
            " kept too, as failed records. Not there if there are none.",
        },
        reasons={"type": "array", "items": {"type": "string"}, "description": "What is wrong with the first of them."},
    ),
    "Error": _closed(
        {"status": {"const": "error"}, "code": {"type": "string"}, "message": {"type": "string"}},
        index={**_COUNT, "description": "The event that is wrong, counted from 0."},
    ),
}
