"""``split``: make one record of each element of an array."""

from penstock.registry import Component, Kind

component = Component(
    Kind.STEP,
    "split",
    "makes one record of each element of an array",
    config="penstock.steps.split.config:SplitConfig",
    implementation="penstock.steps.split.step:Split",
)
