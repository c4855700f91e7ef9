"""pyarrow works without pandas until somebody imports it, and with it from then on."""

from __future__ import annotations

import subprocess
import sys


def said_by_python(code: str) -> str:
    started = f"import sys, pyarrow as pa\nfrom penstock.pandas_on_demand import defer_pandas\ndefer_pandas()\n{code}"
    return subprocess.run([sys.executable, "-c", started], capture_output=True, text=True, check=True).stdout.strip()


def test_arrays_and_tables_are_made_without_pandas() -> None:
    assert said_by_python("pa.array([1]), pa.table({'a': ['x']}); print('pandas' in sys.modules)") == "False"


def test_a_series_is_known_for_one_as_soon_as_there_can_be_one() -> None:
    code = "import pandas\nprint(pa.array(pandas.Series([1.0, None])).null_count)"
    assert said_by_python(code) == "1"


def test_pandas_itself_is_whole() -> None:
    code = "import pandas\nprint(pa.table({'a': [1]}).to_pandas().equals(pandas.DataFrame({'a': [1]})))"
    assert said_by_python(code) == "True"


def test_a_submodule_that_is_imported_first_is_no_way_around_it() -> None:
    code = "from pandas.api import types\nimport pandas\nprint(pa.array(pandas.Series([None, 1.0])).null_count)"
    assert said_by_python(code) == "1"
