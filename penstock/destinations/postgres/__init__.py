"""The destination ``postgres``: typed tables in a PostgreSQL database, each event exactly once."""

from penstock.registry import built_in

component = built_in(__name__, "Typed tables in PostgreSQL, loaded by COPY, exactly once.")
