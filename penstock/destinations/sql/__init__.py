"""What SQL destinations share: staging typed files, merging their headers, and changing tables by typed operations.

Not a component: ``duckdb`` and its kin are built from it. ``naming`` chooses each record's table, ``staging`` and
``files`` write typed files inside the tasks, ``header`` says what is in them, ``operations`` are the schema changes
that a batch asks for, ``dialect`` turns those into one engine's SQL. ``mirror`` is the other way to load: tables follow
those of a source.
"""
