"""``map``: move, remove, cast and add fields by rules."""

from penstock.registry import built_in

component = built_in(__name__, "moves, removes, casts and adds fields by rules")
