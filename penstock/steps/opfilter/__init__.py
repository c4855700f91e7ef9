"""``opfilter``: let only records of certain ops pass."""

from penstock.registry import Component, Kind

component = Component(
    Kind.STEP,
    "opfilter",
    "lets only records of certain ops pass",
    config="penstock.steps.opfilter.config:OpFilterConfig",
    implementation="penstock.steps.opfilter.step:OpFilter",
)
