"""What SQL destinations share: staging typed files, merging their headers, and changing tables by typed operations.

Not a component: ``duckdb`` and its kin are built from it. ``stage`` chooses each record's table and writes typed files
inside the tasks, ``schema`` holds the changes that a batch asks of tables, ``load`` takes the files into them, and
``dialect`` turns all of it into one engine's SQL. ``mirror`` is the other way to load: tables follow those of a source.
"""
