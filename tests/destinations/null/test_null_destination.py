from pathlib import Path

from penstock.destinations.null.config import NullConfig
from penstock.destinations.null.destination import NullDestination
from penstock.testing.destination import DestinationContract, Staging, batch, numbered


class TestNull(DestinationContract):
    def make(self, tmp_path: Path) -> NullDestination:
        return NullDestination(NullConfig())

    def test_it_leaves_nothing_behind(self, destination: NullDestination, staging: Staging) -> None:
        destination.write(batch(), staging.stage(numbered(range(3))))
        assert list(staging.directory.iterdir()) == []

    def test_it_takes_data_of_any_kind(self, staging: Staging) -> None:
        (part,) = staging.stage([b"\xff\x00", None, b"not json"])
        assert part.rows == 3
