from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.projects import Project, new_project, project_with_history


@pytest.fixture
def fresh(tmp_path: Path) -> Project:
    return new_project(tmp_path)


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    return project_with_history(tmp_path)
