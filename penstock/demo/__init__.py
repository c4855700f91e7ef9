"""The demo: a whole pipeline on this machine, from HTTP to a queryable table, with its accounting."""
