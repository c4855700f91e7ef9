"""From a request's body to events."""
