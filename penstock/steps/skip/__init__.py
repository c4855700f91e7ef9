"""``skip``: drop the records for which a condition is true."""

from penstock.registry import built_in

component = built_in(__name__, "drops the records for which a condition is true")
