"""The destination ``clickhouse``: typed tables in a ClickHouse database; a batch that comes again is left out."""

from penstock.registry import built_in

component = built_in(__name__, "Typed tables in ClickHouse, loaded from Arrow; a batch that comes again is recognised.")
