"""``set``: give fields a computed value."""

from penstock.registry import built_in

component = built_in(__name__, "gives fields a computed value")
