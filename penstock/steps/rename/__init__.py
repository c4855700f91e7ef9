"""``rename``: give fields other names, or other places."""

from penstock.registry import built_in

component = built_in(__name__, "gives fields other names, or other places")
