"""``split``: make one record of each element of an array."""

from penstock.registry import built_in

component = built_in(__name__, "makes one record of each element of an array")
