"""How SQL destinations mirror the tables of a source: ``load: mirror``.

A change travels like this: ``change_stager`` turns records into files of JSON values by column (inside the tasks),
``staged_changes`` puts the files of a table back into the order of the log, ``fold_changes`` folds all changes to one
row into the last one, ``fit_values`` converts the values for the real columns, ``row_changes`` is what an engine then
applies: rows that go, rows that come. ``mirror_patch`` has adapted the table to them before; ``mirror_loader`` makes
all of it happen exactly once, and a change that the engine refuses fail alone.
"""
