"""What a worker process is told at its start, as one line of JSON on its standard input."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, SecretStr

from penstock.sources.contract import SourceContext
from penstock.sources.http.config import CollectorConfig


class Job(BaseModel):
    """``config`` carries the secrets in clear: for the pipe only, never for a file or a command line."""

    source: str
    index: int
    address: str
    port: int
    log_dir: Path
    log_options: str
    metrics_dir: Path
    config: dict[str, object]

    @classmethod
    def of(cls, config: CollectorConfig, context: SourceContext, index: int, address: tuple[str, int]) -> Self:
        return cls(
            source=context.name,
            index=index,
            address=address[0],
            port=address[1],
            log_dir=context.log_dir,
            log_options=context.log_options,
            metrics_dir=metrics_dir(context),
            config=_revealed(config),
        )


def metrics_dir(context: SourceContext) -> Path:
    """Where the workers of a source leave their counters."""
    return context.state_dir / "metrics"


def _revealed(config: CollectorConfig) -> dict[str, object]:
    document: dict[str, object] = config.model_dump(mode="json", exclude={"tokens"})
    document["tokens"] = [
        {name: value.get_secret_value() if isinstance(value, SecretStr) else value for name, value in token}
        for token in config.tokens
    ]
    return document
