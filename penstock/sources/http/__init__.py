"""The collector: events over HTTP, answered with 200 once they are on disk."""

from penstock.registry import built_in

component = built_in(
    __name__, "Takes JSON events over HTTP: single, arrays, templates, NDJSON, pixels, Segment; 200 means on disk."
)
