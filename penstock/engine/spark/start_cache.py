"""What a JVM of Spark need not find out at every start: its command, and an archive of the classes that it loads.

    python -m penstock.engine.spark.start_cache

makes both, once for each Java and Spark, in the user's cache folder (``make setup`` does). Without them Spark starts in
its own way, which takes three times as long.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Event

_VERSION = "2"
_LAUNCHER = "org.apache.spark.launcher.Main"
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_PATIENCE = 600
_CONFIG = """\
name: classes
sources:
  web: {type: file, path: ./web.ndjson}
routes:
  out: {from: web, to: {type: "null"}}
  once: {from: web, steps: [{dedupe: {key: n, window: 1h}}], to: {type: "null"}}
"""


@dataclass(frozen=True)
class StartCache:
    """The folder of one Java and Spark. It is there when it is whole."""

    folder: Path

    @property
    def archive(self) -> Path:
        return self.folder / "classes.jsa"

    @property
    def _command(self) -> Path:
        return self.folder / "command.json"

    def command(self) -> list[str] | None:
        """Java, its options, and the class to run; ``None`` if it is not there, or others could have written it."""
        try:
            if any(self._is_foreign(path) for path in (self.folder, self._command, self.archive)):
                return None
            return [str(word) for word in json.loads(self._command.read_text())]
        except (OSError, ValueError):
            return None

    def write(self, command: list[str]) -> None:
        self._command.write_text(json.dumps(command))

    @staticmethod
    def _is_foreign(path: Path) -> bool:
        found = path.stat()
        return found.st_uid != os.getuid() or bool(found.st_mode & 0o022)


def spark_home() -> Path:
    """The Spark that was installed with PySpark. Imports nothing of it."""
    found = find_spec("pyspark")
    origin = None if found is None else found.origin
    assert origin is not None
    return Path(origin).parent


def find_java() -> str | None:
    """Where Spark looks: in ``JAVA_HOME`` if it is set, on the ``PATH`` otherwise."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def find_start_cache() -> StartCache | None:
    """The cache for the Java and Spark at hand, made or not; ``None`` where there is no Java or no cache folder."""
    java = find_java()
    try:
        if java is None:
            return None
        java_home = Path(java).resolve(strict=True).parents[1]
        release = java_home / "release"
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
        versions = [_VERSION, str(spark_home()), str(java_home), release.read_text() if release.exists() else ""]
        # A jar that was exchanged changes its folder.
        versions.append(str((spark_home() / "jars").stat().st_mtime_ns))
    except (OSError, RuntimeError):
        return None
    return StartCache(root / f"spark-{hashlib.sha256(chr(0).join(versions).encode()).hexdigest()[:16]}")


def make_start_cache(cache: StartCache) -> bool:
    """Whether it could be made. It is put in its place when it is whole: a JVM may not notice half an archive."""
    root = cache.folder.parent
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="making-", dir=root) as scratch:
        made = StartCache(Path(scratch) / "made")
        made.folder.mkdir(mode=0o700)
        made.write(ask_launcher(Path(scratch)))
        _record_classes(made.archive, Path(scratch))
        if not made.archive.exists():
            return False
        (made.folder / "spark").symlink_to(spark_home())
        shutil.rmtree(cache.folder, ignore_errors=True)
        made.folder.rename(cache.folder)
    remove_outdated(cache)
    return True


def ask_launcher(scratch: Path) -> list[str]:
    """What Spark's own launcher would run, up to the class and without a size of the heap."""
    properties = scratch / "none.properties"
    properties.touch()
    jars = str(spark_home() / "jars" / "*")
    launched = subprocess.run(
        [str(find_java()), "-cp", jars, _LAUNCHER, _SUBMIT, "--properties-file", str(properties), "pyspark-shell"],
        # The version is only asked where Spark was built from source.
        env={**os.environ, "SPARK_HOME": str(spark_home()), "SPARK_SCALA_VERSION": "2.13"},
        capture_output=True,
        check=True,
        timeout=_PATIENCE,
    )
    words = [word.lstrip("\n") for word in launched.stdout.decode().split("\0")]
    return [word for word in words[: words.index(_SUBMIT) + 1] if word and not word.startswith("-Xmx")]


def _record_classes(archive: Path, scratch: Path) -> None:
    """Run a small pipeline to its end in a JVM that writes its classes when it ends."""
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:+UseSerialGC -XX:ArchiveClassesAtExit={archive} -Xlog:disable"

    from pyspark import SparkContext

    from penstock.config.loading import load
    from penstock.engine.engine import Engine
    from penstock.engine.pipeline import Pipeline
    from penstock.engine.processes.engine_start import start_engine
    from penstock.engine.spark.fork_server import start_fork_server

    path = scratch / "pipeline.yaml"
    path.write_text(_CONFIG)
    (scratch / "web.ndjson").write_text('{"n": 1}\n')
    config = load(path)
    start = start_engine(config, fork_server=sys.platform == "linux")
    if start.forks is not None:
        start_fork_server(start.scratch, start.forks, {"dedupe"}, {"null"})
    Engine(Pipeline.open(config), once=True, start=start).run(Event())
    # A JVM that is left behind is killed, and one that is killed writes nothing.
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_PATIENCE)


def remove_outdated(cache: StartCache) -> None:
    """Of this Spark under another Java, of Sparks that are gone, and of a making that was killed: they are large."""
    for folder in cache.folder.parent.glob("making-*"):
        if time.time() - folder.stat().st_mtime > _PATIENCE:
            shutil.rmtree(folder, ignore_errors=True)
    for folder in cache.folder.parent.glob("spark-*"):
        link = folder / "spark"
        if folder != cache.folder and (not link.exists() or link.resolve() == spark_home().resolve()):
            shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    cache = find_start_cache()
    if cache is None:
        return 1
    if cache.command() is not None:
        return 0
    print("writing down how Spark starts, and the classes that it loads (once)")
    return 0 if make_start_cache(cache) else 1


if __name__ == "__main__":
    sys.exit(main())
