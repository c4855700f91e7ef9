"""The databases that these tests look into."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mmdb import write_asn, write_city


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("geo")
    return [write_city(folder / "City.mmdb"), write_asn(folder / "ASN.mmdb")]
