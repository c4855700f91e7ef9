"""Delivery of a route: takes a range of the log to a batch that the destination has and the ledger counts."""
