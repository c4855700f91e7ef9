"""What goes to the column ``_unmapped``."""
