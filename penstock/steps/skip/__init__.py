"""``skip``: drop the records for which a condition is true."""

from penstock.registry import Component, Kind

component = Component(
    Kind.STEP,
    "skip",
    "drops the records for which a condition is true",
    config="penstock.steps.skip.config:SkipConfig",
    implementation="penstock.steps.skip.step:Skip",
)
