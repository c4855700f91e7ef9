"""``flatten_fields``: make nested objects one level of fields."""

from penstock.registry import built_in

component = built_in(__name__, "makes nested objects one level of fields")
