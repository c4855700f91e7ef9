"""Redaction: a process knows the secrets of its config, and removes them from everything that it prints.

Errors, log lines, the output of verbs and notes in the ledger go through ``redacted``. It removes a secret in every
form in which a driver or a server may repeat it: percent-encoded, quoted, as part of Basic credentials.

A secret of fewer than ``MIN_LENGTH`` characters, or one that is a word of our own, is removed only where it is used as
one: between ``:`` and ``@`` of an address, or after ``password=`` and its like. Anywhere else it could be any word,
and lines with ``***`` in its place could not be read.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO
from urllib.parse import quote, quote_plus, unquote

MASK = "***"
MIN_LENGTH = 6

SECRET_NAME = re.compile(
    r"pass(?:word|wd|phrase)|\bpwd\b|secret|token|credential|jaas|signature"
    r"|(?:access|api|private|account|shared|encryption|signing|storage|master)[._-]?key",
    re.IGNORECASE,
)
"""Names of options, parameters and settings that hold a secret."""

_OUR_WORDS = frozenset((
    "bigquery", "clickhouse", "client", "collector", "config", "database", "default", "destination", "duckdb", "engine",
    "events", "failed", "ledger", "loaded", "localhost", "metrics", "namespace", "offset", "partition", "password",
    "penstock", "pipeline", "postgres", "postgresql", "private", "public", "records", "redshift", "schema", "secret",
    "server", "skipped", "snowflake", "source", "sources", "status", "tables", "tokens", "username", "waiting",
    "warehouse",
))  # fmt: skip
_LONGEST_KNOWN = 10_000
_BEHIND = r"[a-z][a-z0-9+.-]*://[^\s/?#:@]*:|(?:pass(?:word|wd)|pwd|secret|token|key)[\"']?\s*[=:]\s*[\"']?"
_BEFORE = r"(?=$|[\s@&'\",;)}\]])"


class Redactor:
    """Removes a fixed set of secrets from texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        strong: set[str] = set()
        weak: set[str] = set()
        for secret in secrets:
            for plain in {secret, unquote(secret)} - {""}:
                (weak if is_weak(plain) else strong).update(spellings(plain))
        parts = []
        if strong:
            parts.append(_any_of(strong))
        if weak:
            parts.append(f"(?i:({_BEHIND}))(?:{_any_of(weak)}){_BEFORE}")
        self._pattern = re.compile("|".join(parts)) if parts else None

    def redacted(self, text: str) -> str:
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: f"{(found[1] or '') if found.re.groups else ''}{MASK}", text)


def is_weak(secret: str) -> bool:
    """Whether it is too short, or too common a word, to be removed where it is not used as a secret."""
    return len(secret) < MIN_LENGTH or secret.lower() in _OUR_WORDS


def spellings(secret: str) -> set[str]:
    """The forms in which other software may repeat a secret."""
    encoded = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    found = {
        secret,
        *encoded,
        *(re.sub(r"%[0-9A-F]{2}", lambda escape: escape[0].lower(), text) for text in encoded),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        secret.replace("'", "''"),
        secret.replace("\\", "\\\\").replace("'", "\\'"),
    }
    return found if is_weak(secret) else found | set(_in_base64(secret.encode("utf-8", "surrogatepass")))


def _in_base64(secret: bytes) -> Iterator[str]:
    """The characters that it always has in base64, wherever in a longer text it begins (``Basic dXNlcjpz...``)."""
    for shift in range(3):
        whole = base64.b64encode(b"\0" * shift + secret).decode()
        begin = -(-shift * 8 // 6)
        end = (shift + len(secret)) * 8 // 6
        sure = whole[begin:end]
        if len(sure) >= MIN_LENGTH:
            yield sure
            yield sure.replace("+", "-").replace("/", "_")


def _any_of(texts: set[str]) -> str:
    return "|".join(re.escape(text) for text in sorted(texts, key=lambda text: (-len(text), text)))


_lock = threading.Lock()
_known: set[str] = set()
_redactor = Redactor(())


def add_secrets(secrets: Iterable[str]) -> None:
    """From now on ``redacted`` removes these secrets in this process."""
    global _redactor
    with _lock:
        new = {secret for secret in secrets if secret} - _known
        if new and len(_known) < _LONGEST_KNOWN:
            _known.update(new)
            _redactor = Redactor(_known)


def forget_secrets() -> None:
    """Forget all secrets. For a process that continues with another config."""
    global _redactor
    with _lock:
        _known.clear()
        _redactor = Redactor(())


def redacted(text: str) -> str:
    """The text without any secret that this process knows."""
    return _redactor.redacted(text)


class RedactedStream:
    """A text stream that shows no secret; otherwise the stream itself. Bytes (``buffer``) pass unchanged."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(redacted(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def redact_stderr() -> None:
    """Redact standard error for the rest of this process: log lines, traces, warnings."""
    if not isinstance(sys.stderr, RedactedStream):
        sys.stderr = RedactedStream(sys.stderr)


@contextmanager
def redacting_output() -> Iterator[None]:
    """Redact both outputs while a verb runs."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = RedactedStream(out), RedactedStream(err)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err
