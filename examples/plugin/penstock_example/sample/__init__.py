"""Step ``sample``: keeps a share of the records."""

from penstock.registry import Component, Kind

component = Component(
    Kind.STEP,
    "sample",
    "Keeps a share of the records: all of a user, say, or none of them.",
    config="penstock_example.sample.config:SampleConfig",
    implementation="penstock_example.sample.step:Sample",
)
