"""One key on its way: its requests go out one after the other, and the next is built while one is in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.destinations.sending.request_protocol import (
    Answer,
    Judgement,
    NoAnswer,
    Progress,
    Refused,
    Request,
    Verdict,
    Work,
)


class Built(NamedTuple):
    start: int
    end: int
    request: Request


@dataclass(frozen=True)
class Line:
    """What a lane sends by."""

    build: Callable[[str, int, int | None], Awaitable[Built]]
    """Builds the request of a key from a row on, up to a row at most."""
    can_build_ahead: Callable[[], bool]
    drop: Callable[[Built], None]
    """Told of every request that is not needed any more."""
    send: Callable[[Request], Awaitable[Answer]]
    judge: Callable[[Answer], Judgement]
    note: Callable[[str, Progress], Awaitable[None]]
    count: Callable[[Mapping[str, int]], None]


@dataclass
class KeyLane:
    """Used by one task. ``end`` says what stopped it, if anything did: the judgement on the request that begins at the
    first row that is not settled."""

    work: Work
    settled: int = field(init=False)
    refused: list[Refused] = field(init=False)
    in_flight: Built | None = None
    sent_at: float = 0.0
    """When what is in flight was sent, by the time of the event loop."""
    is_let_go: bool = False
    """Nobody waits for what is in flight, and nothing else is sent."""
    stopped: Judgement | None = None
    stopped_at: int = 0
    """The row behind the request over which it stopped."""

    def __post_init__(self) -> None:
        self.settled = self.work.known.settled
        self.refused = list(self.work.known.refused)

    @property
    def has_progress(self) -> bool:
        return self.settled > self.work.known.settled

    @property
    def progress(self) -> Progress:
        return Progress(self.settled, tuple(self.refused))

    async def run(self, line: Line) -> Judgement | None:
        """Send until all is settled, a request is not accepted, or the lane is let go. Returns the judgement on the
        request that was in flight when it was let go."""
        ahead: asyncio.Future[Built] | None = None
        most: int | None = None
        try:
            while self.settled < self.work.rows:
                built = await (ahead or line.build(self.work.key, self.settled, most))
                ahead = None
                self.in_flight, self.sent_at = built, asyncio.get_running_loop().time()
                if built.end < self.work.rows and most is None and line.can_build_ahead():
                    ahead = asyncio.ensure_future(line.build(self.work.key, built.end, None))
                try:
                    judgement = await _send(line, built.request)
                finally:
                    line.drop(built)
                self.in_flight = None if not self.is_let_go else built
                line.count(judgement.counted)
                if self.is_let_go:
                    return judgement
                match judgement.verdict:
                    case Verdict.ACCEPTED:
                        most = None
                        await self._settle(line, built)
                    case Verdict.TOO_LARGE if built.end - built.start > 1:
                        await self._drop_ahead(line, ahead)
                        ahead, most = None, (built.end - built.start) // 2
                    case Verdict.REFUSED | Verdict.TOO_LARGE:
                        most = None
                        self.refused.append(Refused(built.start, built.end, judgement.message))
                        await self._settle(line, built)
                    case Verdict.RETRY:
                        self.stopped, self.stopped_at = judgement, built.end
                        return None
            return None
        finally:
            await self._drop_ahead(line, ahead)

    async def _settle(self, line: Line, built: Built) -> None:
        self.settled = built.end
        await line.note(self.work.key, self.progress)

    async def _drop_ahead(self, line: Line, ahead: asyncio.Future[Built] | None) -> None:
        if ahead is not None:
            line.drop(await ahead)


async def _send(line: Line, request: Request) -> Judgement:
    try:
        return line.judge(await line.send(request))
    except NoAnswer as lost:
        return Judgement(Verdict.RETRY, str(lost))
