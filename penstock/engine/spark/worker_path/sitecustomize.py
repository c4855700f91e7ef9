"""Runs at the start of every Python process that Spark's JVM starts: Python itself looks for a module of this name.

Spark puts a zip of PySpark before everything else on the path, so each of these processes would unpack and compile
PySpark anew, which is most of what a short one does. Where the same PySpark is installed, with its compiled modules,
that zip is left out.
"""

from __future__ import annotations

import os
import sys

_HERE = os.path.dirname(__file__)
_INSTALLED = {os.path.join(folder, "pyspark", "python", "lib") for folder in sys.path}

sys.path[:] = [entry for entry in sys.path if entry != _HERE and os.path.dirname(entry) not in _INSTALLED]

# Whoever has a module of this name, too, wants it to run.
_this = sys.modules.pop(__name__)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != __name__:
        raise
    sys.modules[__name__] = _this
