"""What was there before: whether ledger, log and destination tell one story of a route, and what to do if not."""
