"""Records that could not be delivered: kept with their bytes, chosen by an operator, replayed or dropped."""
