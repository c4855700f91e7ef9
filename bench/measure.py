"""What a benchmark yields, and how it is measured: by turns, several rounds, medians.

A machine is never quiet for long. So the contenders of a comparison run one after the other in every round, and what is
compared are their medians: a slow minute of the machine hits all of them.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import median


@dataclass(frozen=True)
class Setting:
    """Where a benchmark may write, and whether it should only show that it works."""

    folder: Path
    quick: bool
    section: str | None = None
    """The only part of it that is wanted, if it has parts."""

    def choose(self, full: int, quick: int) -> int:
        return quick if self.quick else full


class Role(StrEnum):
    US = "us"
    PEER = "peer"
    LIMIT = "limit"


@dataclass(frozen=True)
class Contender:
    """Someone who takes part in a comparison. ``measure`` runs one round and gives its figure."""

    role: Role
    name: str
    measure: Callable[[], float]


@dataclass(frozen=True)
class Figure:
    """What one contender did in every round."""

    role: Role
    name: str
    rounds: tuple[float, ...]

    @property
    def value(self) -> float:
        return median(self.rounds)

    @property
    def spread(self) -> float:
        """Half the distance between the best and the worst round, as a share of the median."""
        return (max(self.rounds) - min(self.rounds)) / 2 / self.value if self.value else 0.0


@dataclass(frozen=True)
class Goal:
    text: str
    met: bool


@dataclass(frozen=True)
class Comparison:
    """One line of the table."""

    name: str
    unit: str
    figures: tuple[Figure, ...]
    goal: Goal | None = None
    notes: tuple[str, ...] = ()

    def figure(self, role: Role) -> Figure | None:
        return next((figure for figure in self.figures if figure.role is role), None)

    @property
    def ratio(self) -> float | None:
        """Our figure as a share of the limit's."""
        us, limit = self.figure(Role.US), self.figure(Role.LIMIT)
        return us.value / limit.value if us and limit and limit.value else None


def by_turns(contenders: Sequence[Contender], rounds: int, warm_up: int = 0) -> tuple[Figure, ...]:
    """Let every contender run once per round; nobody is always the first. Warm-up rounds do not count."""
    for _ in range(warm_up):
        for contender in contenders:
            contender.measure()
    results: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for number in range(rounds):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            results[contender.name].append(contender.measure())
    return tuple(Figure(c.role, c.name, tuple(results[c.name])) for c in contenders)


def ours(name: str, value: float) -> tuple[Figure, ...]:
    """A figure that stands alone: measured over one long run, with nobody to compare to."""
    return (Figure(Role.US, name, (value,)),)


def seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


HEADINGS = ("benchmark", "unit", "Penstock", "peer", "limit", "of the limit", "goal", "met")


def markdown(comparisons: Sequence[Comparison]) -> str:
    """A table for a README, and below it what the figures do not say by themselves."""
    lines = [f"| {' | '.join(HEADINGS)} |", "|---|---|--:|--:|--:|--:|---|---|"]
    lines += [f"| {' | '.join(_cells(comparison))} |" for comparison in comparisons]
    notes: dict[str, str] = {}
    for comparison in comparisons:
        for note in (*_contenders(comparison), *comparison.notes):
            notes.setdefault(note, f"- `{comparison.name}`: {note}")
    return "\n".join([*lines, "", *notes.values()])


def machine() -> str:
    """What the figures were taken on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores ({_cpu()}), {memory:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}; load before the run {load:.2f}"
    )


def _cells(comparison: Comparison) -> list[str]:
    shown = [_figure(comparison.figure(role)) for role in Role]
    goal = comparison.goal
    ratio = f"{comparison.ratio:.0%}" if comparison.ratio is not None else ""
    met = "" if goal is None else ("yes" if goal.met else "**no**")
    return [comparison.name, comparison.unit, *shown, ratio, goal.text if goal else "", met]


def _figure(figure: Figure | None) -> str:
    if figure is None:
        return ""
    text = _number(figure.value)
    return f"{text} ±{figure.spread:.0%}" if len(figure.rounds) > 1 else text


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _contenders(comparison: Comparison) -> list[str]:
    named = [f"{f.role.value} = {f.name}" for f in comparison.figures if f.role is not Role.US]
    return ["; ".join(named)] if named else []


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    fields: Mapping[str, str] = dict(line.split("\t: ", 1) for line in lines if "\t: " in line)
    return fields.get("model name", platform.machine())
