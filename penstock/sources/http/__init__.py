"""The collector: events over HTTP, answered with 200 once they are on disk."""

from penstock.registry import Component, Kind

component = Component(
    Kind.SOURCE,
    "http",
    "Takes JSON events over HTTP: single, arrays, templates, NDJSON, pixels, Segment; 200 means on disk.",
    config="penstock.sources.http.config:HttpConfig",
    implementation="penstock.sources.http.source:HttpSource",
)
