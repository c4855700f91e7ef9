"""What destinations share that send requests to an API: one request in flight per key, many keys at a time."""
