"""``map``: move, remove, cast and add fields by rules."""

from penstock.registry import Component, Kind

component = Component(
    Kind.STEP,
    "map",
    "moves, removes, casts and adds fields by rules",
    config="penstock.steps.map.config:MapConfig",
    implementation="penstock.steps.map.step:Map",
)
