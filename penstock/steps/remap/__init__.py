"""``remap``: give namespaces other names."""

from penstock.registry import Component, Kind

component = Component(
    Kind.STEP,
    "remap",
    "gives namespaces other names",
    config="penstock.steps.remap.config:RemapConfig",
    implementation="penstock.steps.remap.step:Remap",
)
