"""Python processes of Spark's JVM take PySpark from where it is installed, and run what others put in their way."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from penstock.engine.spark import jvm

INSTALLED = Path(pyspark.__file__).parent
PACKED = INSTALLED / "python" / "lib" / "pyspark.zip"
FOLDER = Path(jvm.__file__).with_name("worker_path")


def said_by_python(code: str, *path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    return ended.stdout.strip()


def test_spark_would_take_the_packed_one() -> None:
    assert said_by_python("import pyspark; print(pyspark.__file__)", PACKED).startswith(str(PACKED))


def test_the_installed_pyspark_is_taken() -> None:
    assert said_by_python("import pyspark; print(pyspark.__file__)", PACKED, FOLDER) == str(INSTALLED / "__init__.py")


def test_a_packed_pyspark_of_another_place_stays(tmp_path: Path) -> None:
    other = tmp_path / "pyspark" / "python" / "lib" / "pyspark.zip"
    other.parent.mkdir(parents=True)
    with zipfile.ZipFile(other, "w") as file:
        file.writestr("pyspark/__init__.py", "")
    assert said_by_python("import pyspark; print(pyspark.__file__)", other, FOLDER).startswith(str(other))


@pytest.mark.parametrize("ours_first", [True, False])
def test_a_module_of_the_same_name_runs(tmp_path: Path, ours_first: bool) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.theirs = 1")
    path = [FOLDER, tmp_path] if ours_first else [tmp_path, FOLDER]
    assert said_by_python("import sys; print(sys.theirs)", *path) == "1"


def test_what_it_cannot_import_is_said(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import not_there_at_all")
    environment = {**os.environ, "PYTHONPATH": f"{FOLDER}{os.pathsep}{tmp_path}"}
    ended = subprocess.run([sys.executable, "-c", ""], env=environment, capture_output=True, text=True)
    assert "not_there_at_all" in ended.stderr
