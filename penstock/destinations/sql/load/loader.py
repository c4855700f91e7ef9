"""Loads one table of a batch into one engine: patches the table, fits the rows, loads each exactly once.

If the engine refuses the rows, the loader finds the bad ones by trying halves: the good ones load, the others fail with
the engine's own message.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.destinations.contract import Batch, Order, Part, TableReceipt
from penstock.destinations.sql.load.attempt import Attempt, BatchWrite
from penstock.destinations.sql.load.fit_rows import FittedRows, Fitting, keyless_failures
from penstock.destinations.sql.load.fold_by_key import Folding, SharedKeys, equal_codes
from penstock.destinations.sql.load.merge_rows import Merge
from penstock.destinations.sql.load.oversized_rows import NARROWING_LEVELS, Narrowing
from penstock.destinations.sql.load.table_load import EqualKeys, Load, LoadResult
from penstock.destinations.sql.marks import failures_in, merged_in
from penstock.destinations.sql.schema.alter_table import apply_patch
from penstock.destinations.sql.schema.schema_operations import Table, is_ours
from penstock.destinations.sql.session import known_load
from penstock.destinations.sql.stage.file_header import merge as merge_headers
from penstock.destinations.sql.stage.staged_rows import StagedFile, staged_files
from penstock.destinations.sql.stage.stager import OFFSET, PARTITION, PLACE
from penstock.errors import RefusedError, RowTooLargeError, TableRefusedError, TakesLong
from penstock.flatten.unmapped.unmapped_column import UNMAPPED
from penstock.outcome import FAILURE_SCHEMA, concat_failures

TABLE_REFUSED = "table_refused"
"""The code of rows whose table accepts no row, whatever it holds."""
MAX_CLASHES = 20
"""How many rows to search for that are fine alone but clash with others. Each costs a load per halving."""


def load_table(write: BatchWrite, name: str, parts: Sequence[Part], say_table: bool = False) -> TableReceipt:
    """Load the parts of one table, unless the engine has them. Failures and rows add up to the rows of the parts. With
    ``say_table`` they are parts of several tables, and each row names the one that it was meant for."""
    known = known_load(write.session, write.batch, name)
    if known is not None:
        return TableReceipt(
            name, known.rows, failures_in(known.failures), repeated=True, merged=merged_in(known.failures)
        )
    files = staged_files(parts, say_table)
    try:
        try:
            return _load(write, name, files)
        except TableRefusedError:
            # The table may have changed since it was read. If not, this fails the same way.
            return _load(write, name, files)
    except TableRefusedError as error:
        return TableReceipt(name, 0, all_rows_failed(files, TABLE_REFUSED, error.what))


def _load(write: BatchWrite, name: str, files: Sequence[StagedFile]) -> TableReceipt:
    rules, dialect = write.rules, write.session.dialect
    table = apply_patch(write.session, rules, name, files, write.book)
    if table is None or not (_has_foreign_key(table) or set(rules.primary_key) <= table.columns.keys()):
        failures = [keyless_failures(rows, rules.primary_key) for file in files for rows in file.batches()]
        return TableReceipt(name, 0, concat_failures(failures))
    # Fields without a column too: their values in _unmapped can get one later, of the type that a cast asks for.
    write.book.note_paths(
        name, {column.name: column.paths for column in merge_headers(file.header for file in files) if column.paths}
    )
    same = _single_type_columns(files)
    fittings = [rules.fitting(file, table, dialect, same) for file in files]
    key = tuple(table.key.columns) if table.key else rules.primary_key
    version = rules.version_column if key and rules.version_column in table.columns else None
    losing = frozenset(name for fitting in fittings for name in fitting.may_lose)
    narrowing = Narrowing(table, dialect, [*key, *([version] if version else [])])
    merge = Merge(key, version, losing=losing | narrowing.movable) if key else None
    rows = _Slice(table, files, fittings, narrowing, merge, write.batch.order, 0, sum(file.rows for file in files))
    found = _Loader(write, rows).load()
    refused = found.failures if found.failures.num_rows else None
    return TableReceipt(name, found.rows, refused, merged=found.merged)


def _single_type_columns(files: Sequence[StagedFile]) -> set[str]:
    types: dict[str, set[pa.DataType]] = {}
    for file in files:
        for column in file.schema:
            types.setdefault(column.name, set()).add(column.type)
    return {name for name, found in types.items() if len(found) == 1}


def _has_foreign_key(table: Table) -> bool:
    return table.key is not None and not is_ours(table.key)


@dataclass(frozen=True)
class _Slice:
    """Rows of a load by number, without those that are left out. Fitted again each time they are read."""

    table: Table
    files: Sequence[StagedFile]
    fittings: Sequence[Fitting]
    narrowing: Narrowing
    merge: Merge | None
    order: Order | None
    start: int
    end: int
    left_out: frozenset[int] = frozenset()
    narrowed_rows: Mapping[int, int] = field(default_factory=dict)
    """Rows that are too large together with what the table has, each with its narrowing level."""
    refused: Sequence[pa.RecordBatch] = ()
    """The failures of the rows that are left out."""
    attempt: Attempt = Attempt.LENIENT
    failures: list[pa.RecordBatch] = field(init=False, default_factory=list)
    """Rows that fit nowhere; complete once the readers were read."""
    written: list[int] = field(init=False, default_factory=list)
    """How many rows each reader gave, once they were read; rows of one key count as one."""
    equal_keys: npt.NDArray[np.int64] | None = None
    """Which keys are equal to the engine, as ``SharedKeys`` takes them, if it knows more than we do."""
    given: list[npt.NDArray[np.int64]] = field(init=False, default_factory=list)
    """The codes of the keys of the rows that the readers gave, once they were read."""

    def load(self, batch: Batch | None = None) -> Load:
        in_turns = self._keys is not None and self._keys.in_turns
        merge = replace(self.merge, in_turns=in_turns) if self.merge else None
        meant_for = dict.fromkeys(file.meant_for for file in self.files if file.meant_for is not None)
        return Load(self.table, self, merge, batch, tuple(meant_for))

    def columns(self) -> Sequence[str]:
        named = [name for fitting in self.fittings for name in fitting.names]
        if self.merge is not None:
            # Even where no row has them: a row without its key fails, a row without a version is older than one with a
            # version, and a value that found its column is removed from the table row's _unmapped.
            named += [*self.merge.key, *([self.merge.version] if self.merge.version else [])]
            named += [UNMAPPED] if UNMAPPED in self.table.columns else []
        return list(dict.fromkeys(named))

    @cached_property
    def _keys(self) -> SharedKeys | None:
        if self.merge is None:
            return None
        version = self.merge.version
        staged = [(fitting, rows) for file, fitting in self._pairs() for rows in self._staged(file)]
        return SharedKeys(
            [fitting.key_of(rows) for fitting, (rows, _) in staged],
            [fitting.column_of(rows, version) for fitting, (rows, _) in staged] if version else None,
            [(rows.column(PARTITION), rows.column(OFFSET)) for _, (rows, _) in staged],
            self.order,
            self.equal_keys,
        )

    def with_equal_keys(self, classes: npt.NDArray[np.int64]) -> _Slice:
        """The same rows, of which some have equal keys to the engine: it says a class for each that the readers
        gave."""
        assert self._keys is not None
        return replace(self, equal_keys=equal_codes(np.concatenate(self.given), classes, self._keys.count))

    def readers(self) -> Iterator[pa.RecordBatchReader]:
        self.failures.clear()
        self.written.clear()
        self.given.clear()
        folding = None
        if self._keys is not None:
            # Rows are folded after they are fitted, when they have the table's own names.
            version = self.merge.version if self.merge else None
            folding = Folding(self._keys, self.table.columns[version].name if version else None)
        batches = itertools.count()
        for file, fitting in self._pairs():
            schema = self.narrowing.schema(fitting.schema)
            yield pa.RecordBatchReader.from_batches(schema, self._fitted(file, fitting, folding, batches))
        for folded in folding.folded_rows() if folding else ():
            rows = self.narrowing.narrow(folded)
            self.written.append(rows.num_rows)
            yield pa.RecordBatchReader.from_batches(rows.schema, [rows])
        if folding is not None:
            self.given.extend(folding.given)

    def result(self) -> LoadResult:
        failures = concat_failures([*self.refused, *self.failures])
        self.attempt.check_failures(failures)
        rows = self.end - self.start - failures.num_rows
        return LoadResult(rows, failures, rows - sum(self.written) if self.merge else 0)

    def _pairs(self) -> Iterator[tuple[StagedFile, Fitting]]:
        for file, fitting in zip(self.files, self.fittings, strict=True):
            if file.first_row < self.end and self.start < file.first_row + file.rows:
                yield file, fitting

    def _staged(self, file: StagedFile) -> Iterator[tuple[pa.RecordBatch, Sequence[int]]]:
        """Batches with the numbers of their rows."""
        row = max(self.start, file.first_row)
        for staged in file.batches(self.start, self.end):
            numbers: Sequence[int] = range(row, row + staged.num_rows)
            row += staged.num_rows
            if self.left_out:
                staged = staged.filter(pa.array([number not in self.left_out for number in numbers], pa.bool_()))
                numbers = [number for number in numbers if number not in self.left_out]
            yield staged, numbers

    def _fitted(
        self, file: StagedFile, fitting: Fitting, folding: Folding | None, batches: Iterator[int]
    ) -> Iterator[pa.RecordBatch]:
        """``batches`` numbers the batches of all files, as the folding counted them."""
        for (staged, numbers), number in zip(self._staged(file), batches, strict=False):
            found = fitting.fit(staged)
            if found.failures.num_rows:
                self.failures.append(found.failures)
            fitted = self.narrowing.narrow(found.rows, self._levels(numbers, found))
            rows = folding.add_batch(number, fitted, found.kept) if folding else fitted
            if rows.num_rows:
                self.written.append(rows.num_rows)
                yield rows

    def _levels(self, numbers: Sequence[int], found: FittedRows) -> npt.NDArray[np.int8] | None:
        if not self.narrowed_rows:
            return None
        chosen = np.array([self.narrowed_rows.get(number, 0) for number in numbers], np.int8)
        return chosen if found.kept is None else chosen[found.kept]


@dataclass(frozen=True)
class _Loader:
    write: BatchWrite
    rows: _Slice
    """All of them."""
    narrowed_rows: dict[int, int] = field(default_factory=dict)
    """Rows that the engine found too large together with what their table has, each with its narrowing level."""

    def load(self) -> LoadResult:
        """Returns the rows that failed; all others are loaded."""
        try:
            return self._load_all({})
        except RefusedError as error:
            refused = self._find_refused_rows(error)
        try:
            return self._load_all(refused)
        except RefusedError as error:
            # Every row is fine alone, but not all of them together.
            refused = self._find_clashing_rows(refused, error)
        try:
            return self._load_all(refused)
        except RefusedError as error:
            # It is not the rows: what has the table's name accepts none at all.
            raise TableRefusedError(error.code, error.what, error.fix) from error

    def _load_all(self, refused: dict[int, str]) -> LoadResult:
        """Load all rows but the refused ones. Raises ``RefusedError`` if the engine refuses further rows."""
        failures = [self._refused_failures(refused)] if refused else []
        attempt = self.write.attempt
        rows = replace(self._slice(0, self.rows.end, frozenset(refused)), refused=failures, attempt=attempt)
        return self._load_rows(rows, self.write.batch if attempt.keeps else None)

    def _load_rows(self, rows: _Slice, batch: Batch | None = None) -> LoadResult:
        session = self.write.session
        try:
            try:
                return session.load(rows.load(batch))
            except EqualKeys as found:
                return session.load(rows.with_equal_keys(found.classes).load(batch))
        except RefusedError as error:
            if not isinstance(error, RowTooLargeError):  # a row that is too large can be narrowed
                self.write.attempt.check_refusal(error)
            raise

    def _find_refused_rows(self, error: RefusedError) -> dict[int, str]:
        """The numbers of the rows that the engine refuses, each with its message."""
        found: dict[int, str] = {}
        ranges = deque([(0, self.rows.end, error)])
        tries = 0
        deadline = time.monotonic() + self.write.batch.seconds_per_table
        while ranges:
            if time.monotonic() > deadline:
                raise self._takes_long(error)
            # The largest ranges first: if the tries run out, only small ranges around the bad rows fail as a whole.
            start, end, error = ranges.popleft()
            if end - start == 1 and self._fits_when_narrowed(start, error):
                continue
            if end - start == 1 or tries >= self.write.session.max_tries:
                found.update(dict.fromkeys(range(start, end), error.what))
                continue
            middle = (start + end) // 2
            for low, high in ((start, middle), (middle, end)):
                tries += 1
                refusal = self._try_load(low, high)
                if refusal is not None:
                    ranges.append((low, high, refusal))
        return found

    def _takes_long(self, error: RefusedError) -> TakesLong:
        return TakesLong(
            "PEN-DST-115",
            f"many rows of table '{self.rows.table.name}' are refused, and to find them all takes longer than"
            f" {self.write.batch.seconds_per_table:.0f} s: {error.what}",
            "Nothing to do: they are searched for beside the other tables.",
        )

    def _fits_when_narrowed(self, row: int, error: RefusedError) -> bool:
        """Whether a row that is too large loads once its movable values go to ``_unmapped``; if so, remember its
        level."""
        if not isinstance(error, RowTooLargeError) or not self.rows.narrowing.applies or row in self.narrowed_rows:
            return False
        for self.narrowed_rows[row] in NARROWING_LEVELS:
            if self._try_load(row, row + 1) is None:
                return True
        del self.narrowed_rows[row]
        return False

    def _find_clashing_rows(self, refused: dict[int, str], error: RefusedError) -> dict[int, str]:
        """Further rows to leave out so that the rest load together: each is the first that clashes with the rows before
        it. If there are too many to find, all rows are refused."""
        refused = dict(refused)
        if isinstance(error, RowTooLargeError) and self.rows.narrowing.applies:
            # Several records of one key: each fits together with the table's row, but not all of them.
            self.narrowed_rows.update(dict.fromkeys(range(self.rows.end), NARROWING_LEVELS[-1]))
            if self._try_load(0, self.rows.end, frozenset(refused)) is None:
                return refused
        fine = 0
        for _ in range(MAX_CLASHES):
            low, high = fine, self.rows.end
            while high - low > 1:
                middle = (low + high) // 2
                said = self._try_load(0, middle, frozenset(refused))
                low, high, error = (middle, high, error) if said is None else (low, middle, said)
            refused[high - 1] = error.what
            fine = high
            rest = self._try_load(0, self.rows.end, frozenset(refused))
            if rest is None:
                return refused
            error = rest
        return dict.fromkeys(range(self.rows.end), error.what)

    def _try_load(self, start: int, end: int, left_out: frozenset[int] = frozenset()) -> RefusedError | None:
        try:
            self._load_rows(self._slice(start, end, left_out))
        except RefusedError as error:
            return error
        return None

    def _slice(self, start: int, end: int, left_out: frozenset[int] = frozenset()) -> _Slice:
        return replace(self.rows, start=start, end=end, left_out=left_out, narrowed_rows=dict(self.narrowed_rows))

    def _refused_failures(self, refused: dict[int, str]) -> pa.RecordBatch:
        places = _places(self.rows.files).take(pa.array(list(refused), pa.int64()))
        codes = pa.repeat(pa.scalar("refused"), len(refused))
        columns = [*places.columns, codes, pa.array(refused.values(), pa.string())]
        return pa.table(columns, schema=FAILURE_SCHEMA).combine_chunks().to_batches()[0]


def all_rows_failed(files: Sequence[StagedFile], code: str, message: str) -> pa.RecordBatch:
    """Every row of the files, failed for one reason."""
    places = _places(files)
    said = (pa.repeat(pa.scalar(text, pa.string()), places.num_rows) for text in (code, message))
    return pa.table([*places.columns, *said], schema=FAILURE_SCHEMA).combine_chunks().to_batches()[0]


def _places(files: Sequence[StagedFile]) -> pa.Table:
    rows = [rows.select(PLACE) for file in files for rows in file.batches()]
    return pa.Table.from_batches(rows).combine_chunks()
