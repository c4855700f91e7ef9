"""``dedupe``: skip records whose key was seen a short time before."""

from penstock.registry import built_in

component = built_in(__name__, "skips records whose key was seen a short time before")
