"""Small MaxMind databases for tests: real files, with the layout of MaxMind's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmdb_writer import MMDBWriter
from netaddr import IPSet

BERLIN: dict[str, Any] = {
    "continent": {"code": "EU", "names": {"en": "Europe"}},
    "country": {"iso_code": "DE", "names": {"en": "Germany", "de": "Deutschland"}},
    "subdivisions": [{"iso_code": "BE", "names": {"en": "State of Berlin"}}],
    "city": {"names": {"en": "Berlin"}},
    "postal": {"code": "10117"},
    "location": {"latitude": 52.5196, "longitude": 13.4069, "accuracy_radius": 20, "time_zone": "Europe/Berlin"},
}
SAO_PAULO: dict[str, Any] = {
    "continent": {"code": "SA"},
    "country": {"iso_code": "BR", "names": {"en": "Brazil"}},
    "subdivisions": [{"iso_code": "SP", "names": {"en": "São Paulo"}}, {"iso_code": "X"}],
    "city": {"names": {"en": "São Paulo"}},
    "location": {"latitude": -23.5, "longitude": -46.625, "time_zone": "America/Sao_Paulo"},
}
CITIES: dict[str, Any] = {"81.2.69.0/24": BERLIN, "2001:db8:55::/48": SAO_PAULO, "200.1.0.0/16": SAO_PAULO}
NETWORKS: dict[str, Any] = {
    "81.2.0.0/16": {"autonomous_system_number": 20712, "autonomous_system_organization": 'Andrews "A&A" Ltd'},
    "2001:db8::/32": {"autonomous_system_number": 64496, "autonomous_system_organization": "Example Net"},
}


def write_database(path: Path, kind: str, records: Mapping[str, Any], ip_version: int = 6) -> Path:
    """A database file with a record per network."""
    writer = MMDBWriter(ip_version, kind, ["en"], "for tests", ipv4_compatible=ip_version == 6)
    for network, record in records.items():
        writer.insert_network(IPSet([network]), record)
    writer.to_db_file(str(path))
    return path


def write_city(path: Path) -> Path:
    return write_database(path, "GeoLite2-City", CITIES)


def write_asn(path: Path) -> Path:
    return write_database(path, "GeoLite2-ASN", NETWORKS)
