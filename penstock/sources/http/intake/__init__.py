"""From events to records that are durable in the log."""
