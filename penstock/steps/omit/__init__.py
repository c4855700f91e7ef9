"""``omit``: take fields out of every record."""

from penstock.registry import built_in

component = built_in(__name__, "takes fields out of every record")
