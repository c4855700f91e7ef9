"""``where``: let only those records pass for which a condition is true."""

from penstock.registry import built_in

component = built_in(__name__, "lets only those records pass for which a condition is true")
