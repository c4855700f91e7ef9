"""Reads tables of a PostgreSQL database: a consistent copy first, then every change, each once."""

from penstock.registry import built_in

component = built_in(__name__, "Copies PostgreSQL tables and follows their changes by logical replication, each once.")
