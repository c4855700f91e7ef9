"""Step ``thin``: keeps a share of the records."""

from penstock.registry import Component, Kind

component = Component(
    Kind.STEP,
    "thin",
    "Keeps a share of the records: all of a user, say, or none of them.",
    config="penstock_example.thin.config:ThinConfig",
    implementation="penstock_example.thin.step:Thin",
)
