"""Writes a small MaxMind database, so that the example runs without an account. Use a GeoLite2 file for real ones."""

from __future__ import annotations

from pathlib import Path

from mmdb_writer import MMDBWriter
from netaddr import IPSet

PLACES = {
    "81.2.69.0/24": ("DE", "Germany", "Berlin", 52.52, 13.40),
    "200.1.0.0/16": ("BR", "Brazil", "São Paulo", -23.55, -46.63),
    "2001:db8:55::/48": ("JP", "Japan", "Osaka", 34.69, 135.50),
}


def write(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    writer = MMDBWriter(6, "GeoLite2-City", ["en"], "places of the example", ipv4_compatible=True)
    for network, (code, country, city, latitude, longitude) in PLACES.items():
        writer.insert_network(
            IPSet([network]),
            {
                "country": {"iso_code": code, "names": {"en": country}},
                "city": {"names": {"en": city}},
                "location": {"latitude": latitude, "longitude": longitude},
            },
        )
    writer.to_db_file(str(path))


if __name__ == "__main__":
    write(Path(__file__).parent / "geo" / "demo-city.mmdb")
