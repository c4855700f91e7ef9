"""Destination ``null``: counts what reaches it and keeps nothing."""

from penstock.registry import built_in

component = built_in(
    __name__, "Counts records and drops them: to try a route, or to measure everything before the destination."
)
