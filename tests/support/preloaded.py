"""What processes of tests have loaded when they begin: imported by the server that they are forked from."""

from __future__ import annotations

import gc

from setproctitle import getproctitle

from penstock import pandas_on_demand

# As in the processes of a pipeline.
pandas_on_demand.defer_pandas()

import pyspark.sql.streaming.python_streaming_source_runner  # noqa: E402
import pyspark.sql.worker.create_data_source  # noqa: E402
import pyspark.sql.worker.plan_data_source_read  # noqa: E402
import pyspark.worker  # noqa: E402, F401

import penstock.cli.main  # noqa: E402
import penstock.cli.status  # noqa: E402
import penstock.destinations.duckdb.destination  # noqa: E402
import penstock.destinations.postgres.destination  # noqa: E402
import penstock.engine.delivery.deliver_batch  # noqa: E402
import penstock.engine.engine  # noqa: E402
import penstock.engine.operate.status  # noqa: E402
import penstock.engine.processes.supervisor  # noqa: E402
import penstock.sources.file.source  # noqa: E402
import penstock.sources.http.source  # noqa: E402
import penstock.sources.postgres.source  # noqa: E402, F401
from penstock.engine.spark.warm_up import warm_up  # noqa: E402

# It must see the environment that this process was started with, to know where the kernel reads a title.
getproctitle()
warm_up()
gc.collect()
gc.freeze()
