"""``python``: run a function of your own over the records."""

from penstock.registry import built_in

component = built_in(__name__, "runs a function of your own over the records")
