"""What all tests share: settings, and one PostgreSQL, started when the first test asks for it."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import settings

from penstock.redaction import forget
from tests.support.database import Database
from tests.support.postgres import postgres

# Whoever runs the tests in the background of a shell ignores SIGINT, and so would every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests that run side by side are given a width of 80, which tables on paper have not.
os.environ.pop("COLUMNS", None)

# The first call of a compiled function may compile it, which takes longer than any example should.
settings.register_profile("compiled", deadline=None)
settings.load_profile("compiled")


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests() -> Iterator[None]:
    """A process learns the secrets of its config. This one reads many: what is one here is a word elsewhere."""
    yield
    forget()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture
def database(postgres_url: str) -> Database:
    """A schema of the test's own; it is not made yet."""
    return Database(postgres_url, f"t{uuid.uuid4().hex[:12]}")
