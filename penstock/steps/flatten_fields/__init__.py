"""``flatten_fields``: make nested objects one level of fields."""

from penstock.registry import Component, Kind

component = Component(
    Kind.STEP,
    "flatten_fields",
    "makes nested objects one level of fields",
    config="penstock.steps.flatten_fields.config:FlattenFieldsConfig",
    implementation="penstock.steps.flatten_fields.step:FlattenFields",
)
