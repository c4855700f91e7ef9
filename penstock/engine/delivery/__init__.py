"""A route at work: from a range of the log to a batch that its destination has and the ledger counts."""
