"""The process from which Spark forks its Python workers, with everything loaded that a task needs.

Spark starts it by the setting ``spark.python.daemon.module``, once per kind of worker. A task worker forked from it
starts at once instead of importing for seconds, and shares the memory of the imports.
"""

from __future__ import annotations

import gc
import sys

from pyspark import daemon

TASKS = "pyspark.worker"
"""The kind of worker that runs tasks. The others plan a query and live for a moment."""

if __name__ == "__main__":
    if sys.argv[1:2] == [TASKS]:
        from penstock.engine.spark.warm_up import warm_up

        warm_up()
        gc.freeze()
    daemon.manager()
