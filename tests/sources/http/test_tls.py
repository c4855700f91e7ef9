"""HTTPS with a certificate made for the test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from threading import Event

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.errors import PenstockError
from penstock.sources.contract import SourceContext
from penstock.sources.http.config import HttpConfig
from penstock.sources.http.source import HttpSource
from tests.sources.http.server import CLIENT, TOKENS, collector
from tests.support import plain_http
from tests.support.ports import free_port


def certificate(folder: Path, name: str = "site") -> dict[str, str]:
    """A key and a certificate for the loopback address, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = {"cert": folder / f"{name}.crt", "key": folder / f"{name}.key"}
    files["cert"].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    files["key"].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return {option: str(path) for option, path in files.items()}


def test_events_are_taken_over_https_and_only_over_https(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    with collector(tmp_path, tls=tls) as web:
        assert web.url.startswith("https://")
        assert web.post("/api/v1/event", b'{"n":1}').json()["accepted"] == 1
        assert b'"n":1' in (web.records()[-1].data or b"")
        with pytest.raises(httpx.TransportError):
            plain_http.post(f"http://127.0.0.1:{web.port}/api/v1/event", content=b'{"n":2}', headers=CLIENT)
        with pytest.raises(httpx.ConnectError, match="certificate"), httpx.Client() as suspicious:
            suspicious.get(f"{web.url}/healthz")
        assert len(web.records()) == 1


@pytest.mark.parametrize("broken", ["another key", "not PEM", "empty"])
def test_a_certificate_that_cannot_be_used_is_said_once_before_anything_starts(tmp_path: Path, broken: str) -> None:
    tls = certificate(tmp_path)
    if broken == "another key":
        tls["key"] = certificate(tmp_path, "other")["key"]
    else:
        Path(tls["cert"]).write_text("" if broken == "empty" else "no certificate")
    config = HttpConfig.model_validate({"listen": f"127.0.0.1:{free_port()}", "tokens": TOKENS, "tls": tls})
    source = HttpSource(config, SourceContext("web", tmp_path / "log", "{}", tmp_path / "state"))
    stopping = Event()
    stopping.set()
    with pytest.raises(PenstockError, match="PEN-HTTP-002"):
        source.run(stopping)
