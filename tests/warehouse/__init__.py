"""Events and options in, tables out: the rules for warehouses as a table of cases, on a model and on real engines."""

import pytest

pytest.register_assert_rewrite("tests.warehouse.running")
