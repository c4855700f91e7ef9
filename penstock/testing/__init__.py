"""What every source, step and destination owes, as pytest suites that a component of any package inherits.

Subclass the suite of your component, say how to make it, and pytest runs what it owes::

    from penstock.testing.destination import RepeatableContract

    class TestShelf(RepeatableContract):
        def make(self, tmp_path): ...
        def ids(self, destination): ...

============================  ==================================================================================
``source``                    ``ReaderContract``, ``SourceContract``
``step``                      ``StepContract``
``destination``               ``DestinationContract``, ``ReadableContract``, ``RepeatableContract``, ``CopyContract``,
                              ``TransactionalContract``
``sql_destination``           ``SqlContract``, for what is built on ``penstock.destinations.sql``
``own_tables``                ``OwnTablesContract``, of the same
``all_or_nothing``            ``AllOrNothingContract``, of the same
``mirror``                    ``MirrorContract``, of the same
============================  ==================================================================================

Needs ``penstock[testing]``. No other part of Penstock imports this one.
"""

from __future__ import annotations

import pkgutil

import pytest

# An assertion that fails shows the values it compared, as in a test file.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))
