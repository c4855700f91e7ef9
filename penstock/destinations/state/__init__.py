"""Destination ``state``: the newest state that many sources report, each kind in its order, into a database."""

from penstock.registry import built_in

component = built_in(
    __name__, "Keeps the newest state that many sources report in a database, each bundle once and in its order."
)
