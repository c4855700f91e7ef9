"""``set``: give fields a computed value."""

from penstock.registry import Component, Kind

component = Component(
    Kind.STEP,
    "set",
    "gives fields a computed value",
    config="penstock.steps.set.config:SetConfig",
    implementation="penstock.steps.set.step:Set",
)
