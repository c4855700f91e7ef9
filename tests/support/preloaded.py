"""What processes of tests have loaded when they begin: imported by the server that they are forked from."""

from __future__ import annotations

import atexit
import gc
from importlib import import_module

from setproctitle import getproctitle

from penstock.pandas_on_demand import defer_pandas

_MODULES = (
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.worker",
    "penstock.cli.main",
    "penstock.cli.status",
    "penstock.destinations.duckdb.destination",
    "penstock.destinations.postgres.destination",
    "penstock.engine.engine",
    "penstock.engine.operate.status",
    "penstock.engine.processes.supervisor",
    "penstock.sources.file.source",
    "penstock.sources.http.source",
    "penstock.sources.postgres.source",
)

# First of all, as in the processes of a pipeline: it is too late when pandas is there.
defer_pandas()
for _module in _MODULES:
    import_module(_module)
import_module("penstock.engine.spark.warm_up").warm_up()
import_module("penstock.cli.main").command()
# It must see the environment that this process was started with, to know where the kernel reads a title.
getproctitle()
gc.collect()
gc.freeze()
# When the server ends, DuckDB would print a list of what is never freed.
atexit.register(gc.unfreeze)
