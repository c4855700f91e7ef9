"""Servers that stand in for services, as strict as those; each can be run by hand."""
