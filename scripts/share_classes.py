"""``python scripts/share_classes.py FILE``: let a JVM of Spark write down the classes that it loads.

Others that are given FILE start with half the work.

Runs a small pipeline to its end in a JVM that makes FILE when it ends. One of another Java or Spark, or none, is passed
over by a JVM without a word.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from threading import Event

CONFIG = """\
name: classes
sources:
  web: {type: file, path: ./web.ndjson}
routes:
  out: {from: web, to: {type: "null"}}
"""
PATIENCE = 600


def main(target: Path) -> int:
    # Put in its place when it is whole: a JVM that is given half of one may not notice.
    scratch = target.with_suffix(".part")
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:+UseSerialGC -XX:ArchiveClassesAtExit={scratch} -Xlog:disable"

    from pyspark import SparkContext

    from penstock.config.loading import load
    from penstock.engine.engine import Engine
    from penstock.engine.pipeline import Pipeline

    with tempfile.TemporaryDirectory(prefix="penstock-classes-") as folder:
        config = Path(folder) / "pipeline.yaml"
        config.write_text(CONFIG)
        (Path(folder) / "web.ndjson").write_text('{"n": 1}\n')
        whole = Engine(Pipeline.open(load(config)), once=True).run(Event())
        # A JVM that is left behind is killed, and one that is killed writes nothing.
        gateway = SparkContext._gateway
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(PATIENCE)
    if not whole or not scratch.exists():
        return 1
    scratch.replace(target)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
