"""A table as shops have them, its rows, and a steady load of changes on it from a process of its own.

    python -m bench.transport.tables <url> <changes per second> <seconds>

Four connections write, each to rows of its own. Each transaction has 50 changes: 40 updates of rows at random, 5
inserts, 5 deletes of the oldest rows. They begin by the clock, however long the one before took, so a server that is
slow for a moment gets the same load. Each row that is written carries the server's clock at that moment. What was done
is printed as JSON.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np
import orjson
import psycopg

TABLE = "items"
UPDATES, INSERTS, DELETES = 40, 5, 5
IN_A_TRANSACTION = UPDATES + INSERTS + DELETES
WRITERS = 4

_COLUMNS = (
    "id bigint PRIMARY KEY, customer integer NOT NULL, name text NOT NULL, price numeric(12,2) NOT NULL,"
    " version integer NOT NULL, at timestamptz NOT NULL, day date NOT NULL, ok boolean NOT NULL, note text"
)
_ROWS = (
    "SELECT n, mod(n * 7919, 100000)::integer, 'product ' || md5(n::text), mod(n, 100000) / 100.0, 0,"
    " clock_timestamp(), date '2026-01-01' + mod(n, 365)::integer, mod(n, 3) = 0,"
    " CASE WHEN mod(n, 4) > 0 THEN 'note on ' || n END"
)
_INSERT = f"INSERT INTO {TABLE} {_ROWS} FROM generate_series(%s::bigint, %s::bigint, %s::bigint) n".encode()
_DELETE = f"DELETE FROM {TABLE} WHERE id = ANY(%s)".encode()
_UPDATE = f"UPDATE {TABLE} SET version = version + 1, at = clock_timestamp() WHERE id = ANY(%s)".encode()


@dataclass(frozen=True)
class Load:
    """What a load came to."""

    began: float
    """Seconds since the epoch."""
    seconds: float
    changes: int
    late: float
    """The longest that a transaction began after its time."""

    @property
    def rate(self) -> float:
        return self.changes / self.seconds


def create(url: str, rows: int) -> float:
    """Make the table with so many rows; the bytes of one, as COPY writes it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {TABLE} ({_COLUMNS})")
        connection.execute(f"INSERT INTO {TABLE} {_ROWS} FROM generate_series(1::bigint, {rows}) n".encode())
        # The first to read a new row would have to mark it as committed.
        connection.execute(f"VACUUM (FREEZE, ANALYZE) {TABLE}")
        with connection.cursor().copy(f"COPY (SELECT * FROM {TABLE} LIMIT 10000) TO STDOUT") as copy:
            lengths = [len(block) for block in copy]
    return sum(lengths) / min(rows, 10_000)


def put_load(url: str, rate: int, seconds: float) -> subprocess.Popen[bytes]:
    """Start this module; ``finished`` waits for it."""
    command = [sys.executable, "-m", __name__, url, str(rate), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finished(load: subprocess.Popen[bytes]) -> Load:
    said, complaint = load.communicate()
    if load.returncode:
        raise RuntimeError(f"the load ended with {load.returncode}:\n{complaint.decode(errors='replace')[-4000:]}")
    return Load(**orjson.loads(said))


def change(url: str, rate: int, seconds: float) -> Load:
    """Put the load on the table, now; ``rate`` times ``seconds`` is how much, whatever time it takes."""
    transactions = round(rate * seconds / IN_A_TRANSACTION)
    with psycopg.connect(url) as connection:
        ((low, high),) = connection.execute(f"SELECT min(id), max(id) + 1 FROM {TABLE}").fetchall()
    writers = [Writer(url, number, low, high) for number in range(WRITERS)]
    began, clock = time.time(), time.perf_counter()
    with ThreadPoolExecutor(WRITERS) as threads:
        shares = [range(writer.number, transactions, WRITERS) for writer in writers]
        late = max(threads.map(lambda writer, share: writer.write(share, rate, clock), writers, shares))
    return Load(began, time.perf_counter() - clock, transactions * IN_A_TRANSACTION, late)


class Writer:
    """A connection that changes every fourth row: those whose id leaves its number as remainder."""

    def __init__(self, url: str, number: int, low: int, high: int) -> None:
        self.number = number
        self._connection = psycopg.connect(url, autocommit=True)
        self._chance = np.random.default_rng(number)
        self._low, self._high = (end + (number - end) % WRITERS for end in (low, high))

    def write(self, transactions: range, rate: int, clock: float) -> float:
        """Each of the transactions when it is due; the longest that one of them began late."""
        late = 0.0
        with self._connection as connection:
            for number in transactions:
                due = number * IN_A_TRANSACTION / rate - (time.perf_counter() - clock)
                if due > 0:
                    time.sleep(due)
                late = max(late, -due)
                self._change(connection)
        return late

    def _change(self, connection: psycopg.Connection) -> None:
        low, high = self._low, self._high
        self._low, self._high = low + DELETES * WRITERS, high + INSERTS * WRITERS
        places = self._chance.choice((high - self._low) // WRITERS, UPDATES, replace=False)
        updated = (self._low + places * WRITERS).tolist()
        with connection.pipeline(), connection.transaction():
            connection.execute(_INSERT, (high, self._high - 1, WRITERS))
            connection.execute(_DELETE, (list(range(low, self._low, WRITERS)),))
            connection.execute(_UPDATE, (updated,))


if __name__ == "__main__":
    where, per_second, long = sys.argv[1:]
    print(orjson.dumps(asdict(change(where, int(per_second), float(long)))).decode())
