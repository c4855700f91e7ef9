"""Rows of JSON without messages: written by compiled code, where a span is as most are."""
