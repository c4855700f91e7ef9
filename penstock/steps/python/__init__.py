"""``python``: run a function of your own over the records."""

from penstock.registry import Component, Kind

component = Component(
    Kind.STEP,
    "python",
    "runs a function of your own over the records",
    config="penstock.steps.python.config:PythonConfig",
    implementation="penstock.steps.python.step:Python",
)
