"""The destination ``postgres``: typed tables in a PostgreSQL database, each event exactly once."""

from penstock.registry import built_in

component = built_in(
    __name__,
    "PostgresConfig",
    "PostgresDestination",
    "Typed tables in PostgreSQL, loaded by COPY, exactly once.",
)
