"""The names under which decisions are counted, for metrics: the policy, its answer, and where the trace is from."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

OTHER = "other"
"""Where traces are from that no pattern of ``decision_from`` fits."""
MOST_ORIGINS = 256
"""How many names there may be for where traces are from, with this one."""
_PREFIX = "decision"


class CountedDecision(NamedTuple):
    policy: str
    answer: str
    decision_from: str = ""
    """Empty if nobody asked."""

    @property
    def name(self) -> str:
        parts = (self.policy, self.answer, self.decision_from) if self.decision_from else (self.policy, self.answer)
        return "/".join([_PREFIX, *(part.replace("%", "%25").replace("/", "%2F") for part in parts)])

    @classmethod
    def named(cls, name: str) -> CountedDecision | None:
        """What a name stands for; ``None`` if it is that of something else."""
        prefix, *parts = name.split("/")
        return cls(*map(unquote, parts)) if prefix == _PREFIX and len(parts) in (2, 3) else None
