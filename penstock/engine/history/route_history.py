"""Checks whether ledger, log, disk and destination agree on what a route has delivered.

They do not after an older copy of ``data_dir`` was restored, the ledger was deleted, or a route was renamed. Going on
would then silently skip records or deliver them twice. So a route checks before its first batch, and waits for an
operator if it finds a contradiction:

- The ledger knows which writers assigned the offsets that were delivered; the log must know the same (``forks``).
- Spark's checkpoint of a route must not be ahead of the ledger that it belongs to.
- The destination's marks of this ledger and route must be ones that the ledger can have issued.
- The destination must still have the newest batch that it was given: else it is an older copy, or another one.
- A mirror must be able to begin with the first record of a source: else it would lack rows for good.
- A mirror must still have every table that was filled: made again it would have only the rows that change.
- A route without a history in this ledger must not find one: marks of this log under another ledger or under the name
  of a route that the config no longer has, a hold or a checkpoint on disk, another route's files at the same place.

A new route on a new target finds nothing, and starts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.destinations.contract import AnyDestination, Batch, LoadedTable
from penstock.engine.delivery.batch_pieces import remaining
from penstock.engine.failed.replay import repeated_copies
from penstock.engine.history.adoption import LogPart, shared_ranges
from penstock.engine.history.batch_origin import Origin
from penstock.engine.layout import checkpoint_name
from penstock.engine.ledger import Ledger
from penstock.engine.ledger.table_mappings import RouteBook
from penstock.engine.route_sources import own_sources
from penstock.engine.spark.spark_checkpoints import checkpoints_of, delivered_up_to
from penstock.errors import ContradictionError
from penstock.log.lineage import LINEAGE_FILE
from penstock.log.local_log import LocalLog

COPY_AGAIN = "Or let the source copy its tables again (give it a new `slot`), and go on without them until then."
"""What brings the rows of a mirror that the log has no longer."""


@dataclass(frozen=True)
class Missing:
    """What a destination lacks of that which was delivered to it."""

    what: str
    """Rows, and which."""
    how_to_deliver: str
    """The verbs that deliver them again, as sentences; empty if the log has none of them."""
    is_known: bool = False
    """Whether it is known which records they were of."""
    why: str = "it was replaced by an older copy, or by another"


class RowsMissing(ContradictionError):
    """The destination lacks rows of records that are known: once all of these are read again, it is settled."""


@dataclass(frozen=True)
class History:
    """Reads the history of one pipeline's routes. Changes nothing."""

    log: LocalLog
    ledger: Ledger
    routes: Collection[str]
    """The routes of the config."""
    checkpoints: Path | None = None

    def check_local_state(self, route: str, sources: Sequence[str]) -> None:
        """Raises ``ContradictionError`` unless log, ledger and disk agree on the route."""
        for partition, (fork, end) in self.forks(route, sources).items():
            if self._has_lost_its_lineage(partition, fork):
                path = self.log.partition_dir(partition) / LINEAGE_FILE
                raise ContradictionError(
                    "PEN-RTE-020",
                    f"route '{route}' has delivered partition {partition} up to offset {end}, and this log no longer"
                    f" says who wrote its records from offset {fork} on: {path} was lost, or is of an older copy.",
                    "Restore the file. If it is lost and you are sure that this is the log the route delivered from,"
                    f" run: penstock offset adopt {route}, then"
                    f" penstock offset ack {route} {fork}..{end - 1} --partition {partition}",
                )
            raise ContradictionError(
                "PEN-RTE-016",
                f"route '{route}' has delivered partition {partition} up to offset {end}, but this log has other"
                f" records, or none, from offset {fork} on: an older copy of the log was put back.",
                "Put the newer log back. Or go on with this one, after the records that it shares with what was"
                f" delivered: penstock offset adopt {route}",
            )
        if not self.ledger.has_history(route):
            found = self._on_disk(route)
            if found:
                raise self._conflict(route, route, found)
            return
        standing = {partition: position.committed for partition, position in self.ledger.offsets(route).items()}
        for partition, end in self.delivered_by_spark(route).items():
            if standing.get(partition, end) < end:
                raise ContradictionError(
                    "PEN-RTE-024",
                    f"route '{route}' stands at offset {standing[partition]} of partition {partition} in this"
                    f" ledger, and its checkpoint on disk has delivered up to offset {end}: an older copy of the ledger"
                    " was put back.",
                    f"Put the newer one back. Or go on after what was delivered: penstock offset adopt {route}",
                )

    def delivered_by_spark(self, route: str) -> dict[int, int]:
        """How far the route's own checkpoint says that it has come: never further than the ledger it belongs to."""
        if self.checkpoints is None:
            return {}
        name = checkpoint_name(route, self.ledger.scope, self.ledger.generation(route))
        return delivered_up_to(self.checkpoints / name)

    def check_target(self, route: str, sources: Sequence[str], destination: AnyDestination) -> None:
        """Raises ``ContradictionError`` unless the destination's marks agree too, and ``TransientError`` if the
        destination is unavailable."""
        self._check_neighbours(route, destination)
        newest = destination.newest_loads()
        for load in newest:
            if (load.batch.scope, load.batch.route) == (self.ledger.scope, route):
                self._check_own(load)
        accepted = self.ledger.accepted_others(route)
        # Marks under the name of another route of the config are checked by that route.
        others = (self.ledger.dropped_routes() | set(self.routes)) - {route}
        # Its own name first: the advice is better.
        for load in sorted(newest, key=lambda load: load.batch.route != route):
            whose = (load.batch.scope, load.batch.route)
            if whose == (self.ledger.scope, route) or load.batch.route in others:
                continue
            if load.batch.number <= accepted.get(whose, 0):
                continue
            loads = [load, *self._earlier_loads(load, route, sources, destination)]
            unaccepted = (each for each in loads if each.batch.number > accepted.get(whose, 0))
            ahead = next((each for each in unaccepted if self._is_ahead(each, route, sources)), None)
            if ahead is not None:
                raise self._conflict(route, load.batch.route, _describe_load(ahead))
        if destination.mirrors:
            self._check_beginning(route, sources)

    def _check_beginning(self, route: str, sources: Sequence[str]) -> None:
        """Raises if a mirror would begin with a partition whose first records the log has no longer."""
        opened = self.ledger.offsets(route) if self.ledger.has_history(route) else {}
        for partition, owner in self.log.partitions(sources).items():
            oldest = self.log.bounds(partition).oldest
            if oldest == 0 or partition in opened or owner.source in own_sources(route):
                continue
            raise ContradictionError(
                "PEN-RTE-029",
                f"route '{route}' would begin its mirror with offset {oldest} of source '{owner.source}': retention has"
                " removed the records before it, and rows that have not changed since would never come.",
                "Let the source copy its tables again: give it a new `slot`. Then begin with what there is, which the"
                f" copy replaces: {_rewind_all(route)}",
            )

    def _earlier_loads(
        self, newest: LoadedTable, route: str, sources: Sequence[str], destination: AnyDestination
    ) -> Sequence[LoadedTable]:
        """What the ledger of the newest load has loaded before it, if that can matter: the newest may be of records
        that an older copy of the log lacks, and those before it of records that it has."""
        origin = Origin.from_text(newest.batch.origin)
        if origin is None or not self.ledger.has_history(route):
            return ()
        identities = {part.identity for part in self.log_parts(sources).values() if part.identity}
        if all(stretch.identity not in identities for stretch in origin.stretches.values()):
            return ()
        return destination.loads(newest.batch.scope, newest.batch.route)

    def _check_neighbours(self, route: str, destination: AnyDestination) -> None:
        """Raises if a route that left the config wrote to this place: for targets that keep no marks."""
        place = destination.target_path()
        if not place or self.ledger.has_history(route):
            return
        for other, theirs in self.ledger.places().items():
            if theirs == place and other not in self.routes and self.ledger.last_number(other):
                raise self._conflict(route, other, f"route '{other}', which the config no longer has, wrote to {place}")

    def check_nothing_missing(self, route: str, destination: AnyDestination, has_state: bool) -> None:
        """Raises ``ContradictionError`` if the destination does not have what was delivered to it (``RowsMissing`` if
        it is known which records those are), and ``TransientError`` if it is unavailable."""
        missing = self.find_missing(route, destination, has_state)
        if missing is not None:
            found = RowsMissing if missing.is_known else ContradictionError
            raise found(
                "PEN-RTE-026",
                f"the destination of route '{route}' lacks {missing.what}: {missing.why}.",
                f"{missing.how_to_deliver} To go on without them: penstock offset rewind {route} --to 0s".strip(),
            )

    def find_missing(self, route: str, destination: AnyDestination, has_state: bool) -> Missing | None:
        """What was delivered, and the destination does not have. ``None`` if nothing is missing, or if the destination
        keeps no marks. ``has_state``: the route's batches also have records from before their ranges, which waited."""
        # First: a lost table lacks more than the batches that are listed.
        return self._find_lost_tables(route, destination) or self._find_lost_batches(route, destination, has_state)

    def _find_lost_batches(self, route: str, destination: AnyDestination, has_state: bool) -> Missing | None:
        own = set(self.ledger.adopted_histories(route))
        accepted = {pair: number for pair, number in self.ledger.accepted_others(route).items() if pair in own}
        newest = self.ledger.newest_marked(route)
        if not destination.capabilities.marks or not (newest or accepted):
            return None
        everything = f"To deliver everything again (doubled without a `primary_key`): {_rewind_all(route)}."
        there = {(load.batch.scope, load.batch.route): load.batch.number for load in destination.newest_loads()}
        for (scope, name), number in accepted.items():
            if there.get((scope, name), 0) < number:
                what = f"rows that were delivered to it, up to batch {number} of '{name}' under ledger {scope[:8]}"
                return Missing(what, everything)
        loads = destination.loads(self.ledger.scope, route)
        has = {(load.batch.number, load.table) for load in loads}
        # It keeps its newest marks: what is older than all of them may have had one.
        oldest, last = (min((number for number, _ in has), default=0), max((number for number, _ in has), default=0))
        listed = [part for part in self.ledger.marked_tables(route) if part.number >= oldest]
        lacking = [part for part in listed if (part.number, part.table) not in has]
        unlisted = last < newest and last + 1 < self.ledger.first_listed(route)
        if not lacking and not unlisted:
            return None
        rows = sum(part.rows for part in lacking)
        what = f"{'at least ' if unlisted else ''}{rows} rows that were delivered to it"
        if has_state:
            return Missing(what, everything)
        starts: dict[int, int] = self._stands_at(route, loads) if unlisted else {}
        for part in lacking:
            if part.ranges is None:
                return Missing(what, everything)
            for partition, (start, _) in part.ranges.items():
                starts[partition] = min(start, starts.get(partition, start))
        how_to_deliver = self._how_to_deliver_from(route, starts)
        numbers = {part.number for part in lacking}
        if tables := sorted({table for number, table in has if number in numbers}):
            how_to_deliver += f" What {', '.join(tables)} has of these batches comes again (doubled without a key)."
        return Missing(what, how_to_deliver, is_known=True)

    def _find_lost_tables(self, route: str, destination: AnyDestination) -> Missing | None:
        """The tables of a mirror that were filled and do not exist any more."""
        lost = self.lost_tables(route, destination)
        if not lost:
            return None
        what = f"{'the table' if len(lost) == 1 else 'the tables'} {', '.join(lost)} with all rows"
        partitions = [p for p in self.ledger.offsets(route) if p in self.log.partitions()]
        is_whole = all(self.log.bounds(p).oldest == 0 for p in partitions)
        from_log = f"Or deliver everything again (doubled without a key): {_rewind_all(route)}." if is_whole else ""
        ways = ["Put it back.", *([from_log] if from_log else []), COPY_AGAIN]
        return Missing(what, " ".join(ways), why="it was dropped or renamed there")

    def lost_tables(self, route: str, destination: AnyDestination) -> list[str]:
        """The tables that this ledger has seen filled and that the destination has lost, if it must not lose any."""
        return sorted(destination.lost_tables(RouteBook(self.ledger, route).filled_tables()))

    def _stands_at(self, route: str, loads: Sequence[LoadedTable]) -> dict[int, int]:
        """Up to which offsets the destination has what the route has read."""
        found = {p: self.log.bounds(p).oldest for p in self.ledger.offsets(route) if p in self.log.partitions()}
        for load in loads:
            origin = Origin.from_text(load.batch.origin)
            for partition, stretch in origin.stretches.items() if origin is not None else ():
                found[partition] = max(stretch.end, found.get(partition, 0))
        return found

    def _how_to_deliver_from(self, route: str, starts: Mapping[int, int]) -> str:
        there = {p: max(at, self.log.first_offset(p)) for p, at in starts.items() if p in self.log.partitions()}
        reached = {p: position.committed for p, position in self.ledger.offsets(route).items()}
        copies = repeated_copies(route, self.log, {**reached, **there})
        # Of replayed records, only what does not come again as the original.
        again = {p: at for p, at in there.items() if reached[p] - at > sum(o < reached[p] for o in copies.get(p, ()))}
        verbs = " and ".join(f"penstock offset rewind {route} --to {at} --partition {p}" for p, at in again.items())
        gone = any(p not in there or at < self.log.bounds(p).oldest for p, at in starts.items())
        known = f"To deliver them again: {verbs}." if verbs else ""
        return f"{known} The log no longer has all of them; an archive may.".strip() if gone else known

    def highest_number(self, route: str, destination: AnyDestination) -> int:
        """The highest batch number that the destination has of this ledger and route; 0 if it has none."""
        batches = [load.batch for load in destination.newest_loads()]
        own = [batch.number for batch in batches if (batch.scope, batch.route) == (self.ledger.scope, route)]
        return max(own, default=0)

    def forks(self, route: str, sources: Sequence[str]) -> dict[int, tuple[int, int]]:
        """Partitions in which the log has other records than the route has delivered: the first such offset, and the
        offset that the route has reached."""
        known = self.ledger.lineages(route)
        standing = self.ledger.standing(route)
        found: dict[int, tuple[int, int]] = {}
        for partition in self.log.partitions(sources):
            position = standing.positions.get(partition)
            if position is None:
                continue
            bounds = self.log.bounds(partition)
            reached = position.committed
            if standing.pending is not None and partition in standing.pending.ranges:
                reached = max(reached, standing.pending.ranges[partition][1])
            fork = min(reached, bounds.end)
            lineage = known.get(partition)
            if lineage is not None and lineage.incarnations:
                # Below its oldest offset the log no longer knows the writers.
                start = max(lineage.incarnations[0].first, bounds.oldest)
                if start < fork:
                    fork = lineage.agreed(self.log.lineage(partition), start, fork)
            if fork < reached:
                found[partition] = (fork, reached)
        return found

    def _has_lost_its_lineage(self, partition: int, fork: int) -> bool:
        """Whether the log has a record there and does not know its writer, while the route does."""
        return fork < self.log.bounds(partition).end and not self.log.lineage(partition).writer_of(fork)

    def _check_own(self, load: LoadedTable) -> None:
        batch = load.batch
        last = self.ledger.last_number(batch.route)
        pending = self.ledger.standing(batch.route).pending
        if pending is not None and pending.number == batch.number:
            # It may have got its number while the destination, which has another batch under it, was unavailable.
            last = batch.number - 1 if _is_another(batch, pending) else last
        if batch.number > last:
            raise ContradictionError(
                "PEN-RTE-017",
                f"the destination has batch {batch.number} of route '{batch.route}' (table '{load.table}'), and this"
                f" ledger has delivered batches up to {last} only: an older copy of the ledger or of the whole"
                " `data_dir` was put back.",
                "Put the newer one back. Or go on with this one, after what the destination has:"
                f" penstock offset adopt {batch.route}",
            )
        if batch.number <= self.ledger.accepted_number(batch.route):
            return
        origin = Origin.from_text(batch.origin)
        if origin is not None and not self._is_of_this_log(batch.origin, origin):
            raise ContradictionError(
                "PEN-RTE-018",
                f"batch {batch.number} of route '{batch.route}' at the destination (table '{load.table}') was made of"
                " records that this log does not have: several copies of one `data_dir` have delivered to it.",
                "Decide which copy is to go on. To go on with this one, after what the destination has:"
                f" penstock offset adopt {batch.route}",
            )

    def _is_of_this_log(self, text: str, origin: Origin) -> bool:
        if not origin.stretches.keys() <= self.log.partitions().keys():
            return False
        if Origin.of(self.log, origin.ranges).to_text() == text:
            return True
        return shared_ranges(origin, self.log_parts()) == remaining(origin.ranges, {})

    def log_parts(self, sources: Sequence[str] | None = None) -> dict[int, LogPart]:
        """The partitions, or those of some sources, for comparison with what a destination has."""
        found = {}
        for partition, owner in self.log.partitions(sources).items():
            bounds = self.log.bounds(partition)
            found[partition] = LogPart(owner.identity, bounds.oldest, bounds.end, self.log.lineage(partition))
        return found

    def _is_ahead(self, load: LoadedTable, route: str, sources: Sequence[str]) -> bool:
        """Whether this load holds records of this log that the route has not delivered; for a route without a history
        in this ledger, any records of this log."""
        origin = Origin.from_text(load.batch.origin)
        if origin is None:
            return False
        parts = self.log_parts(sources)
        if not self.ledger.has_history(route):
            identities = {part.identity for part in parts.values() if part.identity}
            return any(stretch.identity in identities for stretch in origin.stretches.values())
        positions = self.ledger.offsets(route)
        shared = shared_ranges(origin, parts)
        return any(p in positions and end > positions[p].committed for p, (_, end) in shared.items())

    def _on_disk(self, route: str) -> str:
        held = {p: offset for p, offset in self.log.holds.get().get(route, {}).items() if offset}
        if held:
            places = ", ".join(f"{offset} in partition {p}" for p, offset in held.items())
            return f"it has let go of the log up to offset {places} ({self.log.directory / 'holds'})"
        if others := self.other_checkpoints(route):
            return f"there is a checkpoint of it ({others[0]})"
        return ""

    def other_checkpoints(self, route: str) -> list[Path]:
        """The checkpoints that a route of this name left under other ledgers."""
        found = [] if self.checkpoints is None else checkpoints_of(self.checkpoints, route)
        return [path for path in found if not path.name.startswith(f"{route}-{self.ledger.scope[:8]}")]

    def _conflict(self, route: str, other: str, found: str) -> ContradictionError:
        name = f"'{other}'" if other != route else "a route of this name"
        known = "is not that far" if self.ledger.has_history(route) else "has no history in this ledger"
        return ContradictionError(
            "PEN-RTE-019",
            f"route '{route}' {known}, but {name} has delivered from this log before: {found}. The"
            " ledger was deleted or replaced, or the route was renamed.",
            f"Go on after it: penstock offset adopt {other} {route}."
            f" Or deliver everything again: {_rewind_all(route)}."
            " Or deliver only what comes from now on: penstock run --from now",
        )


def _rewind_all(route: str) -> str:
    return f"penstock offset rewind {route} --to 1970-01-01"


def _is_another(batch: Batch, pending: Batch) -> bool:
    origin = Origin.from_text(batch.origin)
    return origin is not None and origin.ranges != dict(pending.ranges)


def _describe_load(load: LoadedTable) -> str:
    origin = Origin.from_text(load.batch.origin)
    ends = ", ".join(
        f"{each.end} in partition {partition}" for partition, each in (origin.stretches.items() if origin else ())
    )
    return (
        f"its batch {load.batch.number} is at the destination, with table '{load.table}', up to offset {ends} (ledger"
        f" {load.batch.scope[:8]})"
    )
