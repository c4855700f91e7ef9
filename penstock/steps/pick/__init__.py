"""``pick``: keep some fields of every record and nothing else."""

from penstock.registry import Component, Kind

component = Component(
    Kind.STEP,
    "pick",
    "keeps some fields of every record and nothing else",
    config="penstock.steps.pick.config:PickConfig",
    implementation="penstock.steps.pick.step:Pick",
)
