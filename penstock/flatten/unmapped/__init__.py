"""What finds no place in a column."""
