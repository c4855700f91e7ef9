"""Jobs of Spark that are no routes: they run once, for a verb, beside an engine that may run too."""
