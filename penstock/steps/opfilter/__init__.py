"""``opfilter``: let only records of certain ops pass."""

from penstock.registry import built_in

component = built_in(__name__, "lets only records of certain ops pass")
