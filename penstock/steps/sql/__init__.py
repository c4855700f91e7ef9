"""``sql``: make new records by a SELECT over the fields."""

from penstock.registry import Component, Kind

component = Component(
    Kind.STEP,
    "sql",
    "makes new records by a SELECT over the fields",
    config="penstock.steps.sql.config:SqlConfig",
    implementation="penstock.steps.sql.step:Sql",
)
