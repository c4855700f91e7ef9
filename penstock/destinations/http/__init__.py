"""Destination ``http``: records to any API, in requests of one or many, in order by key."""

from penstock.registry import built_in

component = built_in(__name__, "Sends records to an HTTP API, in batches, in order by key.")
