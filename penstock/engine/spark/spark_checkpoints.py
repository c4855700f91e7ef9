"""Spark's checkpoints on disk, and how far they say that a route has come."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from penstock.log.format.log_files import replace_durably
from penstock.log.read_ranges import offsets_from_json, offsets_to_json

_STATE_NAME = "state-name.txt"


def checkpoints_of(folder: Path, route: str) -> list[Path]:
    """The checkpoints of a route, of any ledger."""
    # Another route's name may begin like that: the route's name must be followed by a ledger's id.
    return [path for path in sorted(folder.glob(f"{route}-????????*")) if _belongs_to(path.name, route)]


def begun_batches(checkpoint: Path) -> list[int]:
    """The numbers of the last batches that Spark has begun with it."""
    return [int(path.name) for path in (checkpoint / "offsets").glob("*") if path.name.isdigit()]


def newest_batch(checkpoint: Path) -> int | None:
    """The number of the last of them."""
    return max(begun_batches(checkpoint), default=None)


def has_batches(checkpoint: Path) -> bool:
    """Whether Spark has begun a batch with it."""
    return newest_batch(checkpoint) is not None


def lacks_state(checkpoint: Path) -> bool:
    """Whether batches were completed with it, and what they left as state is gone. Of a query that has state."""
    return any((checkpoint / "commits").glob("*")) and not has_state(checkpoint)


def has_other_state(checkpoint: Path, name: str | None) -> bool:
    """Whether batches were begun with it by a query with other state than the one of this name. An empty name is that
    of no state; ``None`` fits every state."""
    if name is None or not has_batches(checkpoint):
        return False
    note = checkpoint / _STATE_NAME
    return not note.exists() or note.read_text() != name if name else has_state(checkpoint)


def has_state(checkpoint: Path) -> bool:
    """Whether it has state of any query."""
    return any((checkpoint / "state").glob("*"))


def find_moved_state(checkpoint: Path) -> None:
    """Let Spark find the state of a checkpoint whose folder was moved or copied: it notes where the schemas of the
    state are by their full paths."""
    for note in (checkpoint / "state").glob("*/_metadata/v2/[0-9]*"):
        version, _, content = note.read_text().partition("\n")
        noted = json.loads(content)
        for store in noted.get("stateStoreInfo", ()):
            paths = store.get("stateSchemaFilePaths", ())
            store["stateSchemaFilePaths"] = [_below(checkpoint, path) for path in paths]
        if noted != json.loads(content):
            replace_durably(note, f"{version}\n{json.dumps(noted, separators=(',', ':'))}".encode())
            note.with_name(f".{note.name}.crc").unlink(missing_ok=True)


def _below(checkpoint: Path, path: str) -> str:
    """The path of a file of this checkpoint, wherever the checkpoint was when the path was noted."""
    _, state, name = path.rpartition("/state/")
    return f"file:{checkpoint.absolute()}{state}{name}" if state else path


def keep_state_name(checkpoint: Path, name: str) -> None:
    """Note what the state of a checkpoint is of, before its first batch."""
    if not has_batches(checkpoint):
        checkpoint.mkdir(parents=True, exist_ok=True)
        replace_durably(checkpoint / _STATE_NAME, name.encode())


def keep_start(checkpoint: Path, positions: Mapping[int, int]) -> dict[int, int]:
    """Where the first batch of a checkpoint begins in each partition, whenever it is asked. Spark does not note that:
    it asks the source again when it replays the batch, and the ledger may be past it by then. In a partition of which
    no batch has begun yet, the first one begins at ``positions``."""
    file, newest = checkpoint / "first-batch.json", newest_batch(checkpoint)
    kept = offsets_from_json(json.loads(file.read_text())) if newest is not None and file.exists() else {}
    begun = batch_end(checkpoint, newest) if newest is not None else {}
    found = kept | {p: position for p, position in positions.items() if p not in begun}
    if found != kept:
        checkpoint.mkdir(parents=True, exist_ok=True)
        replace_durably(file, json.dumps(offsets_to_json(found)).encode())
    return found


def next_start(checkpoint: Path) -> dict[int, int]:
    """Where the next batch of a checkpoint begins that was kept with ``keep_start``; empty if Spark has begun none."""
    file = checkpoint / "first-batch.json"
    if not has_batches(checkpoint) or not file.exists():
        return {}
    return offsets_from_json(json.loads(file.read_text())) | delivered_up_to(checkpoint)


def batch_end(checkpoint: Path, batch: int) -> dict[int, int]:
    """Where a batch ends, as Spark fixed it before the batch began."""
    # The file has a version, the batch's metadata, and a line per source; there is one source.
    end = (checkpoint / "offsets" / str(batch)).read_text().splitlines()[2]
    return offsets_from_json(json.loads(end))


def delivered_up_to(checkpoint: Path) -> dict[int, int]:
    """Where the last completed batch ends; empty if there is none, or if it cannot be read."""
    done = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdigit()]
    try:
        return batch_end(checkpoint, max(done)) if done else {}
    except (OSError, ValueError, LookupError):
        return {}


def _belongs_to(name: str, route: str) -> bool:
    scope = name.removeprefix(f"{route}-")[:8]
    return len(scope) == 8 and all(sign in "0123456789abcdef" for sign in scope)
