"""The names of the tables that a store keeps besides those of the state."""

from __future__ import annotations

VERSIONS = "penstock_versions"
SEEN = "penstock_seen"
PARKED = "penstock_parked"
COLUMNS = "penstock_columns"
TRANSPORT = "transport"
OWN_TABLES = (VERSIONS, SEEN, PARKED, COLUMNS, TRANSPORT)
"""No kind may have one of these for its table."""
