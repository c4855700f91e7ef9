"""``pretty``: show a few of the records that pass, and change nothing."""

from penstock.registry import built_in

component = built_in(__name__, "shows a few of the records that pass, and changes nothing")
