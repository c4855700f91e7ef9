"""How SQL destinations follow the tables of a source: ``load: mirror``.

A change travels like this: ``staging`` turns records into files of JSON values by column (inside the tasks), ``staged``
puts the files of a table back into the order of the log, ``folding`` makes of all changes to one row the last one,
``fitting`` turns the values into those of the real columns, ``changes`` is what an engine then applies: rows that go,
rows that come. ``patching`` has made the table fit for them before, ``loading`` sees to it that all of it happens
exactly once, and that a change which the engine refuses fails alone.
"""
