"""``sql``: make new records by a SELECT over the fields."""

from penstock.registry import built_in

component = built_in(__name__, "makes new records by a SELECT over the fields")
