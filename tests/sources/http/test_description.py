"""The description at ``/openapi.json`` is true: whatever is sent, the answer is one that it names."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from penstock.sources.http.access.endpoints import ENDPOINTS
from penstock.sources.http.openapi.description import document
from tests.sources.http.server import Running, collector

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 8
ALSO_WRONGLY = {
    "/api/v1/event",
    "/api/v1/p.gif",
    "/api/v1/s2s/event",
    "/api/v1/events/bulk",
    "/api/v1/bundles",
    "/v1/batch",
    "/v1/track",
}


def operations() -> list[tuple[str, str, GenerationMode]]:
    """Every operation with what fits it; one path of each kind also with what does not."""
    paths = document()["paths"]
    assert isinstance(paths, dict)
    return [
        (path, method, mode)
        for path, methods in paths.items()
        for method in methods
        for mode in GenerationMode
        if mode is GenerationMode.POSITIVE or path in ALSO_WRONGLY
    ]


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    tokens = [{"id": "site", "client_secret": "public", "server_secret": "private", "origins": ["*.shop.example"]}]
    with collector(tmp_path_factory.mktemp("described"), tokens=tokens) as running:
        yield running


@pytest.fixture(scope="module")
def described(web: Running) -> BaseSchema:
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    return schemathesis.openapi.from_url(f"{web.url}/openapi.json")


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as kept:
        yield kept


def secret_for(path: str) -> str:
    endpoint = ENDPOINTS.get(path)
    return "public" if endpoint is None or endpoint.client_secret else "private"


@pytest.mark.parametrize(("path", "method", "mode"), operations())
def test_every_answer_is_described(
    described: BaseSchema, session: requests.Session, path: str, method: str, mode: GenerationMode
) -> None:
    operation = described[path][method.upper()]
    answered: list[int] = []

    @seed(20)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def probe(case: schemathesis.Case) -> None:
        admitted = case.call(session=session, params={"token": secret_for(path)})
        answered.append(admitted.status_code)
        case.validate_response(admitted, checks=CHECKS)
        case.call_and_validate(session=session, checks=CHECKS)

    probe()
    if mode is GenerationMode.POSITIVE:
        assert {200, 204} & set(answered), "nothing got through"


def test_the_description_is_openapi(described: BaseSchema) -> None:
    described.validate()
