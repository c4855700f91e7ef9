"""``rename``: give fields other names, or other places."""

from penstock.registry import Component, Kind

component = Component(
    Kind.STEP,
    "rename",
    "gives fields other names, or other places",
    config="penstock.steps.rename.config:RenameConfig",
    implementation="penstock.steps.rename.step:Rename",
)
