"""Following changes by logical replication."""
