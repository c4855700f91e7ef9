"""The destination ``snowflake``: typed tables in a Snowflake schema, each event exactly once."""

from penstock.registry import built_in

component = built_in(__name__, "Typed tables in Snowflake, loaded from staged Parquet files, exactly once.")
