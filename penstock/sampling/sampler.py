"""Tail sampling of one shard: which traces wait, which are decided, and what a batch of spans makes of them.

A trace is judged whenever spans of it come, by these and by what is kept of earlier ones; earlier spans are never
looked at again. What waits are pointers. Time is what spans say of their arrival: the same batches give the same
decisions, whoever decides.

The state is a row of blobs, one per batch, of moves (``journal.py``). Once they have more than three times the bytes of
what is known, or are many, all of it is written anew in their place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from penstock.holding.decision import Decision, StateChange
from penstock.holding.item import ITEM, MADE, Items, sorted_by_log
from penstock.holding.item_chains import ItemChains
from penstock.sampling.ask_policies import asking
from penstock.sampling.batch_work import ANSWERS_AT, Leaving, Rules, Tally, Work, new_decided, new_leaving
from penstock.sampling.commands import FLUSH, RATE, STRESS, percentage_of, policy_of
from penstock.sampling.decide_units import decide_all, flush_waiting, release_up_to
from penstock.sampling.decision_names import CountedDecision
from penstock.sampling.fold_units import fold, in_log_order, items_of
from penstock.sampling.journal import EMPTY, make_moves, new_journal, record, written
from penstock.sampling.policy_config import DEFAULT_SALT
from penstock.sampling.policy_program import (
    ANSWERS,
    PolicyProgram,
    hash_bound,
    salted_hash,
)
from penstock.sampling.sampler_limits import SamplerLimits, regulate
from penstock.sampling.span_item import DECISION, LEAVING_SPAN, NOT_SAMPLED, SPAN_ITEM
from penstock.sampling.state_blobs import (
    BYTES_PER_ITEM,
    BYTES_PER_TRACE,
    ITEMS_PER_BLOB,
    Header,
    decode,
    encode,
    renumbered,
    snapshot,
)
from penstock.sampling.trace_homes import (
    LIMIT,
    NOT_SAMPLED_HOME,
    PRIMARY,
    SAMPLED_HOME,
    SECONDARY,
    TRACE,
    Rows,
    TraceTable,
    Words,
)
from penstock.sampling.trace_keys import round_keys

LEAST_BYTES = 1 << 20
"""Smaller state is not tidied up for its bytes."""
MOST_BLOBS = 1000

_NO_COMMANDS: Items = np.empty(0, SPAN_ITEM)
_ANY = 2**62
_HOME_NAMES = {PRIMARY: "primary", SECONDARY: "secondary", SAMPLED_HOME: "sampled", NOT_SAMPLED_HOME: "not_sampled"}


class Sampler:
    """``limits`` are those of the whole route, of which this is one of so many ``shards``. ``secret`` is the one that
    the trace ids in items were scrambled with. In a dry run everything leaves and says what would become of it.
    Without ``relief`` policies are always asked, whatever commands said while there was some. Only one that is
    ``followed`` notes in ``decided`` what it has decided. ``origins`` are the names of where traces are from, by the
    number that spans have."""

    def __init__(
        self,
        program: PolicyProgram,
        limits: SamplerLimits,
        shards: int,
        secret: bytes,
        dry_run: bool = False,
        relief: bool = True,
        followed: bool = False,
        origins: Sequence[str] = ("",),
    ) -> None:
        self._program = program
        self._limits = limits.split(shards)
        self._shards = shards
        self._keys = round_keys(secret)
        self._dry_run = dry_run
        self._relief = relief
        self._followed = followed
        self._origins = origins
        self.decided: Rows = np.empty(0, TRACE)
        """The traces of which the last batch has known the decision, each as it was then; the last of a trace
        counts."""
        self._registers = program.new_registers()
        self._rates: dict[str, float] = {}
        """Those that a command has set."""
        self._stress: float | None = None
        self._table = TraceTable()
        self._chains = ItemChains()
        self._table.ends[PRIMARY:, LIMIT] = (
            self._limits.primary,
            self._limits.secondary or 0,
            self._limits.sampled,
            self._limits.not_sampled,
        )
        self._stored = self._header()
        """As the last blob has it."""
        self._sizes: list[int] = []
        """The bytes of every blob."""

    def __len__(self) -> int:
        """How many items wait."""
        return len(self._chains)

    @property
    def nbytes(self) -> int:
        """The memory that traces and pointers take."""
        return self._table.nbytes + 16 * self._table.capacity + len(self._chains.items) * (ITEM.itemsize + 8)

    def apply(self, blob: bytes) -> None:
        read = decode(blob)
        self._set(read.header)
        self._table.make_room(len(read.moves.rows))
        self._chains.make_numbers(self._table.capacity)
        place = self._chains.append(read.items)
        moves = read.moves._replace(rows=renumbered(read.moves.rows, read.header, self._header()))
        make_moves(self._table.homes, self._chains.chains, moves, place)
        if EMPTY in moves.kinds[-1:]:
            self._empty()
        self._tidy()
        self._sizes.append(len(blob))

    def drop(self, blobs: int) -> None:
        del self._sizes[:blobs]

    def decide(
        self,
        items: Items,
        ticks: Sequence[int] = (),
        releases: Sequence[int] = (),
        commands: Items = _NO_COMMANDS,
    ) -> Decision:
        """What becomes of spans (``SPAN_ITEM``) in any order, and of those that waited. What leaves is of
        ``LEAVING_SPAN``: of a trace first what waited, then what came. Rates and stress hold before the spans are
        looked at; then every trace of which an item stands at or before one of ``releases`` is evicted; a flush is
        last. Ticks mean nothing here."""
        for command in commands[sorted_by_log(commands)]:
            self._obey(command)
        spans = in_log_order(items)
        if len(spans):
            self._regulate()
        work = self._work(spans)
        decide_all(work)
        if releases:
            release_up_to(work, max(releases))
        self.decided = work.decided.rows[: work.decided.used[0]]
        flushes = commands[(commands["bits"] & FLUSH) != 0]
        made = self._flush(work, flushes[sorted_by_log(flushes)][0]) if len(flushes) else np.empty(0, LEAVING_SPAN)
        released = np.concatenate([self._left(work.leaving), made])
        change = self._change(work)
        self._tidy()
        tally = dict(zip(Tally, work.tally.tolist(), strict=False))
        return Decision(
            released=released,
            passed=tally[Tally.PASSED],
            let_go=tally[Tally.LET_GO],
            held=tally[Tally.HELD],
            skipped=tally[Tally.SKIPPED],
            waiting=len(self),
            change=change,
            holds=self._chains.lowest_offsets(),
            dropped=tally[Tally.DROPPED],
            made=len(made),
            reasons={
                each.name.lower(): count
                for each, count in tally.items()
                if Tally.NOT_SAMPLED <= each <= Tally.DECISION_SPAN and count
            },
            counts=self._counts(work),
            levels=self._levels(),
        )

    def snapshot(self) -> list[bytes]:
        """Blobs that build this state anew."""
        waiting = self._chains.parts(ITEMS_PER_BLOB)
        return list(snapshot(self._header(), self._table.rows_of(*_HOME_NAMES), waiting))

    def write_anew(self) -> list[bytes]:
        """The same, in place of all blobs that there were."""
        blobs = self.snapshot()
        self._sizes = list(map(len, blobs))
        return blobs

    def known(self, high: Words, low: Words) -> Rows:
        """What is known of traces, by their keys."""
        return self._table.rows_with(high, low)

    def _work(self, spans: Items) -> Work:
        units = fold(spans)
        known = len(self._table)
        waiting = len(self._chains)
        self._table.make_room(len(units.units))
        self._chains.make_numbers(self._table.capacity)
        place = self._chains.append(items_of(spans))
        return Work(
            homes=self._table.homes,
            chains=self._chains.chains,
            units=units,
            place=place,
            ask=asking(self._program, self._registers, self._shards),
            rules=self._rules(),
            journal=new_journal(len(units.units), known),
            leaving=new_leaving(len(spans), waiting, known),
            tally=np.zeros(ANSWERS_AT + len(ANSWERS) * len(self._program.names) * len(self._origins), np.int64),
            decided=new_decided(len(units.units), known, self._followed),
        )

    def _rules(self) -> Rules:
        stress = self._stress if self._relief else None
        return Rules(
            dry_run=self._dry_run,
            has_secondary=self._limits.secondary is not None,
            most_spans=_ANY if self._limits.spans_per_trace is None else self._limits.spans_per_trace,
            most_bytes=_ANY if self._limits.bytes_per_trace is None else self._limits.bytes_per_trace,
            sticky_bits=np.uint64(self._program.sticky_bits),
            stressed=stress is not None,
            stress_rate=stress or 0.0,
            stress_bound=np.uint64(hash_bound(stress or 0.0)),
            stress_salted=np.uint64(salted_hash(DEFAULT_SALT)),
            id_keys=self._keys,
            origins=len(self._origins),
        )

    def _obey(self, command: np.void) -> None:
        percentage = percentage_of(command)
        if command["bits"] & STRESS:
            self._stress = percentage if math.isfinite(percentage) else None
        elif command["bits"] & RATE and math.isfinite(percentage):
            number = policy_of(command)
            if number in self._program.remote:
                self._set_rate(self._program.names[number], percentage)

    def _set_rate(self, name: str, percentage: float) -> None:
        number = self._program.names.index(name)
        self._rates[name] = percentage
        self._registers["rate"][number] = percentage
        self._registers["bound"][number] = hash_bound(percentage)

    def _regulate(self) -> None:
        most, target = self._limits.primary, self._limits.waiting_bytes
        limit = most
        if target is not None:
            limit = regulate(int(self._table.ends[PRIMARY, LIMIT]), most, self._table.waiting_bytes, target)
        self._table.ends[PRIMARY, LIMIT] = limit

    def _flush(self, work: Work, command: np.void) -> Items:
        """Everything leaves and is forgotten; the decisions that leave."""
        flush_waiting(work)
        rows = self._table.rows_of(SAMPLED_HOME, NOT_SAMPLED_HOME)
        made = np.zeros(len(rows), LEAVING_SPAN)
        for name in ("high", "low", "weight"):
            made[name] = rows[name]
        for name in ("partition", "offset", "order", "time"):
            made[name] = command[name]
        # Every shard makes decisions at the same place of the log: the keys of each tell which it is.
        shard = (rows["high"] % np.uint64(self._shards)).astype(np.int64)
        made["item"] = 1 + np.arange(len(rows)) * self._shards + shard
        made["bits"] = rows["policy"].astype(np.uint32) | DECISION | MADE
        made["bits"][rows["home"] == NOT_SAMPLED_HOME] |= NOT_SAMPLED
        record(work.journal, EMPTY)
        return made

    def _left(self, leaving: Leaving) -> Items:
        places, groups = leaving.used.tolist()
        rows = self._chains.items.take(leaving.places[:places])
        left = np.empty(places, LEAVING_SPAN)
        for name in ITEM.names or ():
            left[name] = rows[name]
        alike = leaving.groups[:groups]
        lengths = np.diff(alike["end"], prepend=0)
        left["bits"] = np.repeat(alike["bits"], lengths)
        left["weight"] = np.repeat(alike["weight"], lengths)
        return left

    def _change(self, work: Work) -> StateChange:
        header = self._header()
        moves, added = written(work.journal, work.units, self._chains.items[work.place : self._chains.used])
        if EMPTY in moves.kinds[-1:]:
            self._empty()
        if len(moves.kinds) == 0 and header == self._stored:
            return StateChange()
        self._stored = header
        blobs = len(self._sizes)
        state = len(self._table) * BYTES_PER_TRACE + len(self._chains) * BYTES_PER_ITEM
        if blobs >= MOST_BLOBS or sum(self._sizes) > LEAST_BYTES + 3 * state:
            return StateChange(self.write_anew(), blobs)
        blob = encode(header, moves, added)
        self._sizes.append(len(blob))
        return StateChange([blob])

    def _empty(self) -> None:
        self._table.clear()
        self._chains = ItemChains()

    def _tidy(self) -> None:
        if self._chains.sparse:
            self._chains.compact()

    def _header(self) -> Header:
        names, registers = self._program.names, self._registers
        limit = int(self._table.ends[PRIMARY, LIMIT])
        return Header(
            policies=names,
            conditions=self._program.conditions,
            rates=dict(self._rates),
            limits={
                names[number]: (int(registers["tokens"][number]), int(registers["filled"][number]))
                for number in np.flatnonzero(self._program.is_limit).tolist()
            },
            stress=self._stress,
            primary=limit if limit < self._limits.primary else None,
        )

    def _set(self, header: Header) -> None:
        names, most = self._program.names, self._limits.primary
        for name, rate in header.rates.items():
            if name in names:
                self._set_rate(name, rate)
        for name, (tokens, filled) in header.limits.items():
            if name in names:
                self._registers["tokens"][names.index(name)] = tokens
                self._registers["filled"][names.index(name)] = filled
        self._stress = header.stress
        self._table.ends[PRIMARY, LIMIT] = min(most, most if header.primary is None else header.primary)
        self._stored = self._header()

    def _counts(self, work: Work) -> dict[str, int]:
        names, answers = self._program.names, work.tally[ANSWERS_AT:].reshape(-1, len(self._origins), len(ANSWERS))
        counts = {
            CountedDecision(names[policy], ANSWERS[answer], self._origins[origin]).name: int(
                answers[policy, origin, answer]
            )
            for policy, origin, answer in np.argwhere(answers).tolist()
        }
        tally = dict(zip(Tally, work.tally.tolist(), strict=False))
        dropped = tally[Tally.SKIPPED] + tally[Tally.DROPPED] - tally[Tally.DECISION_SPAN]
        counts |= {
            "spans_in": tally[Tally.PASSED] + tally[Tally.HELD] + tally[Tally.SKIPPED] - tally[Tally.DECISION_SPAN],
            "spans_out": tally[Tally.PASSED] + tally[Tally.LET_GO],
            "spans_dropped": dropped,
        }
        counts |= {
            f"{'spans_' if each <= Tally.DECISION_SPAN else ''}{each.name.lower()}": count
            for each, count in tally.items()
            if each >= Tally.NOT_SAMPLED
        }
        return {name: count for name, count in counts.items() if count}

    def _levels(self) -> dict[str, int]:
        levels = {"waiting_bytes": self._table.waiting_bytes, "state_bytes": sum(self._sizes)}
        for home, name in _HOME_NAMES.items():
            levels[f"{name}_size"] = self._table.size(home)
            levels[f"{name}_limit"] = int(self._table.ends[home, LIMIT])
        return levels
