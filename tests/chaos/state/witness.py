"""Triggers in the database that see every write, as it happens: of versions, of rows, and what each rests on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from penstock.conflation.version import Version
from penstock.destinations.state.store.places import PostgresPlace, open_store

_TRIGGERS = """
CREATE TABLE witness_writes (
    id bigserial PRIMARY KEY, source text, kind text, incarnation bigint, generation bigint,
    at timestamptz DEFAULT clock_timestamp()
);
CREATE TABLE witness_changes (table_name text, source text, operation text, changes_nothing boolean);
CREATE TABLE witness_violations (what text);

CREATE FUNCTION witness_write() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO witness_writes (source, kind, incarnation, generation)
        VALUES (NEW.source, NEW.kind, NEW.incarnation, NEW.generation);
    RETURN NULL;
END $$;
CREATE TRIGGER witness_write AFTER INSERT OR UPDATE OF generation ON penstock_versions
    FOR EACH ROW EXECUTE FUNCTION witness_write();

CREATE FUNCTION witness_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO witness_changes VALUES (
        TG_TABLE_NAME, coalesce(NEW.source, OLD.source), TG_OP, TG_OP = 'UPDATE' AND NEW IS NOT DISTINCT FROM OLD
    );
    RETURN NULL;
END $$;
CREATE FUNCTION witness_table() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE made text;
BEGIN
    FOR made IN SELECT object_identity FROM pg_event_trigger_ddl_commands() WHERE object_type = 'table' LOOP
        EXECUTE 'CREATE TRIGGER witness_change AFTER INSERT OR UPDATE OR DELETE ON ' || made
            || ' FOR EACH ROW EXECUTE FUNCTION witness_change()';
    END LOOP;
END $$;

CREATE FUNCTION witness_dependency() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    wanted_needs text; wanted_base text; odd text;
BEGIN
    SELECT 'v' || incarnation || '.' || generation INTO wanted_needs
        FROM penstock_versions WHERE source = NEW.source AND kind = 'policies';
    SELECT 'v' || incarnation || '.' || generation INTO wanted_base
        FROM penstock_versions WHERE source = NEW.source AND kind = 'compliance';
    SELECT format('needs %s, base %s', needs, base) INTO odd FROM compliance WHERE source = NEW.source AND (
        base IS DISTINCT FROM wanted_base OR NEW.kind = 'compliance' AND needs IS DISTINCT FROM wanted_needs
    ) LIMIT 1;
    IF odd IS NOT NULL THEN
        INSERT INTO witness_violations VALUES (format(
            '%s %s.%s of %s: a row has %s; there are policies %s, compliance %s', NEW.kind, NEW.incarnation,
            NEW.generation, NEW.source, odd, wanted_needs, wanted_base
        ));
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER witness_dependency AFTER INSERT OR UPDATE OF generation ON penstock_versions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.kind IN ('compliance', 'changes'))
    EXECUTE FUNCTION witness_dependency();
CREATE EVENT TRIGGER witness_table ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION witness_table();
"""
"""What a bundle rests on is looked at when its transaction commits. Tables get their trigger when they are made."""


@dataclass(frozen=True)
class Write:
    """A version that was written, as the transaction that wrote it says."""

    source: str
    kind: str
    version: Version
    at: datetime


@dataclass(frozen=True)
class Witness:
    url: str

    def install(self) -> None:
        """Before the pipeline runs."""
        with open_store(PostgresPlace(self.url)), psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(_TRIGGERS)

    def writes(self, after: int = 0) -> list[Write]:
        """In their order, which is that of commits for each source and kind. ``after``: without the first ones, up to
        that mark."""
        query = f"SELECT source, kind, incarnation, generation, at FROM witness_writes WHERE id > {after} ORDER BY id"
        return [Write(source, kind, Version(*version), at) for source, kind, *version, at in self._ask(query)]

    def mark(self) -> int:
        """Tells earlier writes from later ones."""
        return int(self._ask("SELECT coalesce(max(id), 0) FROM witness_writes")[0][0])

    def row_changes(self) -> int:
        return int(self._ask("SELECT count(*) FROM witness_changes")[0][0])

    def wrong(self) -> Iterator[str]:
        """Everything that must not have happened at any moment."""
        yield from (f"a dependency was violated: {what}" for (what,) in self._ask("SELECT * FROM witness_violations"))
        unchanged = "SELECT table_name, source, count(*) FROM witness_changes WHERE changes_nothing GROUP BY 1, 2"
        for table, source, count in self._ask(unchanged):
            yield f"{count} rows of {source} in {table} were written though nothing changed"
        newest: dict[tuple[str, str], Version] = {}
        for write in self.writes():
            before = newest.get((write.source, write.kind))
            if before is not None and write.version <= before:
                verb = "was written twice" if write.version == before else f"was written after {before}"
                yield f"{write.kind} {write.version} of {write.source} {verb}"
            newest[write.source, write.kind] = write.version

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query.encode()).fetchall()
