"""The command line: one file per verb, each the thin face of a function of the package."""
