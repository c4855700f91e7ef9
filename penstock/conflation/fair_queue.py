"""Whose turn it is: whoever has had a turn stands behind all others, so nobody who has much to do delays the rest."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Member = TypeVar("Member")


class FairQueue(Generic[Member]):
    def __init__(self, members: Iterable[Member] = ()) -> None:
        self._members = deque(members)

    def take(self) -> Member | None:
        """Whoever has waited longest; it is in the queue no more."""
        return self._members.popleft() if self._members else None

    def take_some(self, most: int, suits: Callable[[Member], bool]) -> list[Member]:
        """Up to so many of those that suit, in their order. The others keep their places."""
        taken: list[Member] = []
        passed: list[Member] = []
        while self._members and len(taken) < most:
            member = self._members.popleft()
            (taken if suits(member) else passed).append(member)
        self._members.extendleft(reversed(passed))
        return taken

    def __len__(self) -> int:
        return len(self._members)

    def put_back(self, member: Member) -> None:
        self._members.append(member)
