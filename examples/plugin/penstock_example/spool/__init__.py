"""Source ``spool``: takes files out of a folder."""

from penstock.registry import Component, Kind

component = Component(
    Kind.SOURCE,
    "spool",
    "Takes NDJSON files out of a folder, each as soon as it is there.",
    config="penstock_example.spool.config:SpoolConfig",
    implementation="penstock_example.spool.source:SpoolSource",
)
