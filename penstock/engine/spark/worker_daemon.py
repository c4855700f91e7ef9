"""The process from which Spark forks its Python workers, with everything loaded that a task needs.

Spark starts it by the setting ``spark.python.daemon.module``. A task worker forked from it starts at once instead of
importing for seconds, and shares the memory of the imports. A fork server has loaded what the pipeline uses; without
one, everything is loaded here.
"""

from __future__ import annotations

import gc
import os

from pyspark import daemon

from penstock.engine.spark.fork_server import FOLDER_VARIABLE, is_fork
from penstock.engine.stateful.shard_home import keep_homes_in

if __name__ == "__main__":
    if not is_fork():
        from penstock.engine.spark.warm_up import warm_up

        warm_up()
        gc.freeze()
    keep_homes_in(os.environ.get(FOLDER_VARIABLE))
    daemon.manager()
