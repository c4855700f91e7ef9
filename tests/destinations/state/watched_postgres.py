"""A PostgreSQL that watches what is written to it: triggers note every version, refuse the kinds that they are told to,
and look at every row that is written whether what it rests on is there at that moment.

Rows say what they are: ``kind``, and if they rest on something ``of`` (the kind), ``needs`` (the version) and ``how``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.conflation.bundle import Processed
from penstock.conflation.version import Version
from penstock.destinations.state.config import StateConfig
from penstock.destinations.state.destination import StateDestination
from penstock.destinations.state.store.places import PostgresPlace, open_store
from tests.destinations.state.bundles import KINDS
from tests.support.database import Database

_WATCH = """
SET search_path = "{schema}";
CREATE TABLE refused_kinds (kind text);
CREATE TABLE seen_writes (id bigserial, source text, kind text, incarnation bigint, generation bigint);
CREATE TABLE violations (what text);
CREATE FUNCTION watch_version() RETURNS trigger LANGUAGE plpgsql SET search_path = "{schema}" AS $$
BEGIN
    INSERT INTO seen_writes (source, kind, incarnation, generation)
        VALUES (NEW.source, NEW.kind, NEW.incarnation, NEW.generation);
    IF TG_OP = 'UPDATE' AND (NEW.incarnation, NEW.generation) <= (OLD.incarnation, OLD.generation) THEN
        INSERT INTO violations VALUES (format('%s of %s goes back in time', NEW.kind, NEW.source));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER watch_version AFTER INSERT OR UPDATE OF generation ON penstock_versions
    FOR EACH ROW EXECUTE FUNCTION watch_version();
CREATE FUNCTION refuse_kind() RETURNS trigger LANGUAGE plpgsql SET search_path = "{schema}" AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM refused_kinds WHERE kind = NEW.kind) THEN
        RAISE EXCEPTION 'not this kind';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION watch_row() RETURNS trigger LANGUAGE plpgsql SET search_path = "{schema}" AS $$
DECLARE
    row jsonb := to_jsonb(NEW); there bigint[]; wanted bigint[];
BEGIN
    IF row ->> 'of' IS NULL THEN RETURN NULL; END IF;
    SELECT ARRAY[incarnation, generation] INTO there FROM penstock_versions
        WHERE source = NEW.source AND kind = row ->> 'of';
    wanted := string_to_array(row ->> 'needs', '.')::bigint[];
    IF there IS NULL OR NOT (CASE row ->> 'how'
        WHEN 'exact' THEN there = wanted WHEN 'at_least' THEN there >= wanted ELSE there[1] >= wanted[1] END)
    THEN
        INSERT INTO violations VALUES (format('%s; there is %s', row, there));
    END IF;
    RETURN NULL;
END $$;
"""
_WATCH_TABLE = """
CREATE TRIGGER refuse_kind BEFORE INSERT OR UPDATE ON "{schema}".{table}
    FOR EACH ROW EXECUTE FUNCTION "{schema}".refuse_kind();
CREATE TRIGGER watch_row AFTER INSERT OR UPDATE ON "{schema}".{table}
    FOR EACH ROW EXECUTE FUNCTION "{schema}".watch_row();
"""
TABLES = tuple(sorted({str(kind["table"]) for kind in KINDS}))


@dataclass(frozen=True)
class WatchedPostgres:
    database: Database

    def create(self) -> None:
        """The tables of versions and positions; the state tables when they are ``watch``ed."""
        with open_store(PostgresPlace(self.database.dsn, self.database.schema)):
            pass

    def watch(self) -> None:
        """Called when all tables are there."""
        schema = self.database.schema
        self.database.ask(_WATCH.replace("{schema}", schema))
        for table in TABLES:
            self.database.ask(_WATCH_TABLE.replace("{schema}", schema).replace("{table}", table))

    def drop(self) -> None:
        self.database.ask(f'DROP SCHEMA "{self.database.schema}" CASCADE')

    def destination(self, **options: Any) -> StateDestination:
        place = {"url": self.database.dsn, "database_schema": self.database.schema}
        return StateDestination(StateConfig.model_validate({"kinds": KINDS, **place, **options}))

    def refuse(self, kinds: Collection[str]) -> None:
        self.database.ask("DELETE FROM refused_kinds")
        for kind in kinds:
            self.database.ask(f"INSERT INTO refused_kinds VALUES ('{kind}')")

    @property
    def violations(self) -> list[str]:
        return [what for (what,) in self.database.ask("SELECT what FROM violations")]

    @property
    def versions(self) -> Mapping[tuple[str, str], Processed]:
        found = self.database.ask("SELECT source, kind, incarnation, generation FROM penstock_versions")
        return {(source, kind): Processed(Version(*version)) for source, kind, *version in found}

    @property
    def written(self) -> list[tuple[Any, ...]]:
        return self.database.ask("SELECT source, kind, incarnation, generation FROM seen_writes ORDER BY id")

    def position(self, partition: int = 0) -> int:
        found = self.database.ask(
            "SELECT payload ->> 'offset' FROM transport WHERE name = 'state'"
            f" AND CAST(payload ->> 'partition' AS int) = {partition}"
        )
        return int(found[0][0]) if found else 0

    def values(self, table: str, source: str) -> list[str]:
        return [str(value) for (value,) in self.database.ask(f"SELECT v FROM {table} WHERE source = '{source}'")]
