"""What found no column: kept in ``_unmapped``, and taken back into columns later."""
