"""``gather``: keep the records of a key back until one of them closes it, then let them go on together."""

from penstock.registry import built_in

component = built_in(__name__, "lets the records of a key go on together, when one of them closes it")
