"""How Spark's JVM is started: fast where nobody set it up, and as it was set up where somebody did."""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

from penstock.engine.spark.jvm import JvmDied, StartingJvm
from penstock.engine.spark.jvm_command import direct_command, is_set_up_by_hand, jvm_options, script_command
from penstock.engine.spark.session_settings import session_settings
from penstock.engine.spark.spark_session import explain_start_errors
from penstock.engine.spark.start_cache import StartCache, find_java, find_start_cache, remove_outdated, spark_home
from penstock.errors import RouteError
from penstock.testing.waiting import HANG
from tests.support.small_disk import fill, small_disk

LOCAL = {"spark.master": "local[2]", "spark.driver.memory": "1g"}


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "JAVA_TOOL_OPTIONS", "HADOOP_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)


def java(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(find_java()), *options, "-version"], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("theirs", ["", "-XX:+UseG1GC", "-XX:+UseParallelGC -Xss2m", "-XX:TieredStopAtLevel=4"])
def test_java_starts_with_our_options_and_theirs(theirs: str) -> None:
    ended = java(*jvm_options(shlex.split(theirs), None))
    assert ended.returncode == 0, ended.stderr


def test_a_collector_that_java_reads_by_itself_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseParallelGC")
    assert java(*jvm_options([], None)).returncode == 0


@pytest.mark.parametrize("content", [b"", b"no archive at all", None], ids=["empty", "garbage", "missing"])
def test_an_archive_that_does_not_fit_is_passed_over_without_a_word(tmp_path: Path, content: bytes | None) -> None:
    archive = tmp_path / "classes.jsa"
    if content is not None:
        archive.write_bytes(content)
    ended = java(*jvm_options([], archive))
    assert ended.returncode == 0
    assert len(ended.stderr.splitlines()) == len(java().stderr.splitlines()), ended.stderr


@pytest.mark.parametrize("name", ["SPARK_HOME", "HADOOP_CONF_DIR", "SPARK_DIST_CLASSPATH", "PYSPARK_SUBMIT_ARGS"])
def test_what_only_sparks_own_script_heeds_is_left_to_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert not is_set_up_by_hand(LOCAL)
    monkeypatch.setenv(name, "/somewhere")
    assert is_set_up_by_hand(LOCAL)


@pytest.mark.parametrize(
    "settings", [{"spark.master": "spark://one:7077"}, {"spark.driver.extraClassPath": "/a.jar"}], ids=["far", "path"]
)
def test_so_are_other_masters_and_class_paths(settings: dict[str, str]) -> None:
    assert is_set_up_by_hand({**LOCAL, **settings})


def test_the_script_gets_what_was_given_to_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--packages 'a:b:1' pyspark-shell")
    found = script_command(Path("/run/p"))
    assert found == [
        "/opt/spark/bin/spark-submit",
        "--properties-file",
        "/run/p",
        "--packages",
        "a:b:1",
        "pyspark-shell",
    ]


def test_options_for_sparks_script_count_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Da=1 -Db=2")
    settings = {**LOCAL, "spark.driver.memory": "3g"}
    found = direct_command(["java", "-cp", "x", "Main"], settings, Path("/run/o"), Path("/run/p"))
    words = "java -cp x -Xmx3g @/run/o -Da=1 -Db=2 Main --properties-file /run/p pyspark-shell"
    assert found == words.split()


def test_another_java_has_another_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = find_start_cache()
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    (tmp_path / "jdk" / "bin" / "java").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    other = find_start_cache()
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="99"')
    newer = find_start_cache()
    assert first is not None
    assert first.folder.parent == tmp_path / "penstock"
    assert len({first, other, newer}) == 3


def test_there_is_no_cache_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    assert find_start_cache() is None


def test_a_cache_that_others_could_have_written_is_not_used(tmp_path: Path) -> None:
    cache = StartCache(tmp_path / "cache")
    cache.folder.mkdir(mode=0o700)
    cache.write(["java", "Main"])
    assert cache.command() is None, "there is no archive"
    cache.archive.touch()
    assert cache.command() == ["java", "Main"]
    cache.folder.chmod(0o777)
    assert cache.command() is None


def test_what_make_setup_remembered_is_the_command_of_sparks_launcher() -> None:
    cache = find_start_cache()
    command = None if cache is None else cache.command()
    if command is None:
        pytest.skip("there is no start cache: `make setup` could not write to the cache folder")
    assert command[-1] == "org.apache.spark.deploy.SparkSubmit"
    assert any(str(spark_home() / "jars") in word for word in command)


def test_what_a_killed_making_left_is_removed_and_one_under_way_is_not(tmp_path: Path) -> None:
    cache = StartCache(tmp_path / "spark-now")
    killed, under_way = tmp_path / "making-killed", tmp_path / "making-now"
    for folder in (cache.folder, killed, under_way):
        folder.mkdir()
    os.utime(killed, (0, 0))
    remove_outdated(cache)
    assert sorted(tmp_path.iterdir()) == [under_way, cache.folder]


def test_a_jvm_that_finds_no_room_for_its_connection_is_given_up_at_once_and_started_again(tmp_path: Path) -> None:
    with small_disk(tmp_path, 4) as disk:
        folder = disk / "spark"
        folder.mkdir()
        jvm = StartingJvm(session_settings("shop", "local[1]", folder, {}), folder, tmp_path / "traces.log")
        fill(disk)
        given_up = threading.Timer(HANG, jvm.kill)
        given_up.start()
        try:
            with pytest.raises(JvmDied, match="No space left on device"):
                jvm.connect()
            assert jvm.process.poll() is None, "it lives, and would be waited for"
        finally:
            given_up.cancel()
            jvm.kill()


def test_what_a_jvm_unpacks_is_removed_with_its_scratch_folder(tmp_path: Path) -> None:
    folder = tmp_path / "with a space"
    options = session_settings("shop", "local[1]", folder, {})["spark.driver.extraJavaOptions"]
    assert f"-Djava.io.tmpdir={folder}" in shlex.split(options)


@pytest.mark.parametrize("error", [Py4JNetworkError("Error while sending or receiving"), ConnectionRefusedError()])
def test_a_jvm_that_ends_while_spark_starts_is_started_again(error: Exception) -> None:
    with pytest.raises(JvmDied), explain_start_errors():
        raise error


def test_a_jvm_that_is_refused_by_a_setting_says_so(tmp_path: Path) -> None:
    """And is not started again: only files may be there later."""
    settings = {**session_settings("shop", "local[1]", tmp_path, {}), "spark.submit.deployMode": "cluster"}
    jvm = StartingJvm(settings, tmp_path, tmp_path / "traces.log")
    try:
        with pytest.raises(RouteError, match=r"PEN-ENG-003.*[Cc]luster deploy mode"), explain_start_errors():
            jvm.connect()
    finally:
        jvm.kill()
