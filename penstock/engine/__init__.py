"""The engine: one Spark streaming query per route, the ledger, the failed store, the supervisor."""
