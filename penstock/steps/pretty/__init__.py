"""``pretty``: show a few of the records that pass, and change nothing."""

from penstock.registry import Component, Kind

component = Component(
    Kind.STEP,
    "pretty",
    "shows a few of the records that pass, and changes nothing",
    config="penstock.steps.pretty.config:PrettyConfig",
    implementation="penstock.steps.pretty.step:Pretty",
)
