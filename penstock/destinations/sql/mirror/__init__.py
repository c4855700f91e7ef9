"""How SQL destinations follow the tables of a source: ``load: mirror``.

A change travels like this: ``change_stager`` turns records into files of JSON values by column (inside the tasks),
``staged_changes`` puts the files of a table back into the order of the log, ``fold_changes`` makes of all changes to
one row the last one, ``fit_values`` turns the values into those of the real columns, ``row_changes`` is what an engine
then applies: rows that go, rows that come. ``mirror_patch`` has made the table fit for them before, ``mirror_loader``
sees to it that all of it happens exactly once, and that a change which the engine refuses fails alone.
"""
