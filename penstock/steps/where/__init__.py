"""``where``: let only those records pass for which a condition is true."""

from penstock.registry import Component, Kind

component = Component(
    Kind.STEP,
    "where",
    "lets only those records pass for which a condition is true",
    config="penstock.steps.where.config:WhereConfig",
    implementation="penstock.steps.where.step:Where",
)
