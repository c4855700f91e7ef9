"""The destination ``snowflake``: typed tables in a Snowflake schema, each event exactly once."""

from penstock.registry import Component, Kind

component = Component(
    Kind.DESTINATION,
    "snowflake",
    "Typed tables in Snowflake, loaded from staged Parquet files, exactly once.",
    config="penstock.destinations.snowflake.config:SnowflakeConfig",
    implementation="penstock.destinations.snowflake.destination:SnowflakeDestination",
)
