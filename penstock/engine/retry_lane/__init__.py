"""The retry lane: tables that were unavailable when their batch was committed get their rows later."""
