"""What the database's catalog says about its tables: which exist, their columns, keys and sizes.

Everything is queried in plain SQL, so inside a transaction with a snapshot the answers are as of that snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from penstock.sources.postgres.catalog.table_layout import Column, Layout
from penstock.sources.postgres.catalog.value_kinds import kind_of
from penstock.sources.postgres.connection import Connection
from penstock.sources.postgres.stream.relations import Relation

TypeKey = tuple[int, int]
"""A type's number and its modifier (a length, a precision)."""


@dataclass(frozen=True)
class Table:
    """A table that is, or could be, in a publication."""

    oid: int
    schema: str
    name: str
    published: bool
    readable: bool
    owned: bool
    """Whether our role may put it into a publication."""
    has_identity: bool
    """Whether updates and deletes identify their row; without that PostgreSQL refuses to publish them. Those of a
    partition must do so as those of the whole table do."""
    row_filter: str | None = None
    membership: str = ""
    """What makes it published, by the catalog's numbers: another text whenever it was out of the publication, or was
    published in another way, since the last look."""

    @property
    def namespace(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"


@dataclass(frozen=True)
class LeafTable:
    """A table with pages of its own: the table itself, or a leaf of a partitioned one."""

    oid: int
    relation: str
    pages: int


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def is_selected(namespace: str, patterns: Sequence[str]) -> bool:
    """Whether at least one pattern matches the table, and none with a ``!`` does."""
    left_out = any(fnmatchcase(namespace, pattern[1:]) for pattern in patterns if pattern.startswith("!"))
    return not left_out and any(fnmatchcase(namespace, pattern) for pattern in patterns if not pattern.startswith("!"))


def tables(connection: Connection, publication: str, patterns: Sequence[str]) -> list[Table]:
    """The selected tables, sorted by name, whether the publication has them yet or not.

    A partitioned table is one table if the publication publishes via its root (ours do), and its leaves otherwise.
    """
    has_schemas = connection.info.server_version >= 150_000
    filters, schemas = ("p.rowfilter", _MEMBER_SCHEMAS) if has_schemas else ("NULL::text", "NULL::text")
    query = _TABLES.replace("/*filter*/", filters).replace("/*schemas*/", schemas).encode()
    found = connection.execute(query, {"publication": publication}).fetchall()
    return [table for row in found if is_selected((table := Table(*row)).namespace, patterns)]  # type: ignore[arg-type]


def layouts(connection: Connection, publication: str, oids: Collection[int]) -> dict[int, Layout]:
    """The layouts of the tables that exist. They leave out generated columns and those that the publication leaves out:
    changes do not have them."""
    listed = "p.attnames" if connection.info.server_version >= 150_000 else "NULL::name[]"
    query = _COLUMNS.replace("/*names*/", listed).encode()
    rows = connection.execute(query, {"publication": publication, "oids": list(oids)}).fetchall()
    types = column_types(connection, {(int(str(kind)), int(str(modifier))) for *_, kind, modifier, _ in rows if kind})
    keys = _keys(connection, oids)
    columns: dict[int, list[Column]] = {}
    names: dict[int, str] = {}
    for oid, schema, table, name, kind, modifier, place in rows:
        number = int(str(oid))
        names[number] = f"{schema}.{table}"
        found = columns.setdefault(number, [])
        if kind is not None:
            text, base = types[int(str(kind)), int(str(modifier))]
            found.append(Column(str(name), text, kind_of(base), int(str(place))))
    return {
        oid: Layout(oid, names[oid], tuple(found), _usable(keys.get(oid, ()), found)) for oid, found in columns.items()
    }


def relation_layout(connection: Connection, relation: Relation, types: dict[TypeKey, tuple[str, int]]) -> Layout:
    """The layout of a table at the time of a change: its columns from the stream, the rest from today's catalog.

    The caller keeps ``types`` from one relation to the next. A type that was dropped since counts as text.
    """
    wanted = {(column.type_oid, column.modifier) for column in relation.columns}
    if wanted - types.keys():
        types.update(column_types(connection, wanted - types.keys()))
    columns, numbers = [], _column_numbers(connection, relation.oid)
    for column in relation.columns:
        text, base = types.get((column.type_oid, column.modifier), ("text", 0))
        columns.append(Column(column.name, text, kind_of(base), numbers.get(column.name, 0)))
    key = _keys(connection, [relation.oid]).get(relation.oid, ())
    if relation.identity in "di":
        identity = [column.name for column in relation.columns if column.in_identity]
        # The stream says which columns; the catalog says in which order, if it still has the same ones.
        key = key if set(key) == set(identity) else tuple(identity)
    elif relation.identity == "n":
        key = ()
    return Layout(relation.oid, relation.namespace, tuple(columns), _usable(key, columns))


def column_types(connection: Connection, asked: Collection[TypeKey]) -> dict[TypeKey, tuple[str, int]]:
    """Per type its name by ``format_type()`` and its oid; for a domain, those of its base type."""
    kinds, modifiers = [kind for kind, _ in asked], [modifier for _, modifier in asked]
    rows = connection.execute(_TYPES, {"types": kinds, "modifiers": modifiers}).fetchall()
    return {(int(str(kind)), int(str(modifier))): (str(text), int(str(base))) for kind, modifier, base, text in rows}


def leaf_tables(connection: Connection, oid: int) -> list[LeafTable]:
    """The tables that hold a table's rows."""
    rows = connection.execute(_STRETCHES, {"oid": oid}).fetchall()
    return [
        LeafTable(int(str(leaf)), f"{quoted(str(schema))}.{quoted(str(name))}", int(str(pages)))
        for leaf, schema, name, pages in rows
    ]


def _keys(connection: Connection, oids: Collection[int]) -> dict[int, tuple[str, ...]]:
    rows = connection.execute(_KEYS, {"oids": list(oids)}).fetchall()
    return {int(str(oid)): tuple(names) for oid, names in rows}  # type: ignore[arg-type]


def _column_numbers(connection: Connection, oid: int) -> dict[str, int]:
    return {str(name): int(str(number)) for name, number in connection.execute(_NUMBERS, {"oid": oid}).fetchall()}


def _usable(key: Sequence[str], columns: Sequence[Column]) -> tuple[str, ...]:
    """The key, or none if the layout lacks one of its columns."""
    names = {column.name for column in columns}
    return tuple(key) if names.issuperset(key) else ()


# A deferrable key is none: within a transaction two rows may have the same one, and PostgreSQL does not take it for an
# identity either.
_KEY_INDEX = """i.indisvalid AND i.indimmediate
    AND CASE {0}.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident {1} END"""

_KEY_NAMES = """(SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_index i
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
    WHERE i.indrelid = {0}.oid AND {1})"""

# A change in a partition names its row by the partition's identity, and is told as one of the whole table: if it is not
# a whole row, it has to be the table's key.
_IDENTITY = f"""(leaf.relreplident = 'f' OR {_KEY_NAMES.format("leaf", _KEY_INDEX.format("leaf", "ELSE false"))}
    IS NOT DISTINCT FROM coalesce(
        {_KEY_NAMES.format("c", _KEY_INDEX.format("c", "WHEN 'f' THEN i.indisprimary"))}, ARRAY[]::text[]))"""

_SELF_AND_ROOTS = "(SELECT c.oid UNION SELECT relid FROM pg_partition_ancestors(c.oid))"

_MEMBER_SCHEMAS = f"""(SELECT string_agg('s' || s.oid, ' ' ORDER BY s.oid) FROM pg_publication_namespace s
    JOIN pg_class m ON m.relnamespace = s.pnnspid WHERE s.pnpubid = b.oid AND m.oid IN {_SELF_AND_ROOTS})"""

# A table that is put back, or gets another filter or other columns, has a new row in the catalog. A publication whose
# options change keeps its row, in a new version.
_MEMBERSHIP = f"""(SELECT concat_ws(' ', b.oid, b.xmin, (SELECT string_agg('t' || r.oid, ' ' ORDER BY r.oid)
    FROM pg_publication_rel r WHERE r.prpubid = b.oid AND r.prrelid IN {_SELF_AND_ROOTS}), /*schemas*/)
    FROM pg_publication b WHERE b.pubname = %(publication)s)"""

_TABLES = f"""
SELECT c.oid::int8, n.nspname::text, c.relname::text, p.tablename IS NOT NULL,
    has_table_privilege(c.oid, 'SELECT'), pg_has_role(c.relowner, 'USAGE'),
    NOT EXISTS (SELECT FROM pg_partition_tree(c.oid) t JOIN pg_class leaf ON leaf.oid = t.relid
        WHERE t.isleaf AND NOT {_IDENTITY}) AND (c.relkind = 'p' OR EXISTS (
            SELECT FROM pg_class leaf WHERE leaf.oid = c.oid AND {_IDENTITY})),
    /*filter*/, coalesce({_MEMBERSHIP}, '')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_publication_tables p
    ON p.pubname = %(publication)s AND p.schemaname = n.nspname AND p.tablename = c.relname
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= 16384
    AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
    AND CASE WHEN coalesce((SELECT pubviaroot FROM pg_publication WHERE pubname = %(publication)s), true)
        THEN NOT c.relispartition ELSE c.relkind = 'r' END
ORDER BY 2, 3"""

_COLUMNS = """
SELECT c.oid::int8, n.nspname::text, c.relname::text, a.attname::text, a.atttypid::int8, a.atttypmod, a.attnum
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_publication_tables p
    ON p.pubname = %(publication)s AND p.schemaname = n.nspname AND p.tablename = c.relname
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
    AND (/*names*/ IS NULL OR a.attname = ANY (/*names*/))
WHERE c.oid = ANY (%(oids)s::int8[]::oid[])
ORDER BY c.oid, a.attnum"""

_NUMBERS = """
SELECT attname::text, attnum FROM pg_attribute
WHERE attrelid = %(oid)s::int8::oid AND attnum > 0 AND NOT attisdropped"""

_KEYS = """
SELECT c.oid::int8, array_agg(a.attname::text ORDER BY k.place)
FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid
    AND i.indisvalid AND i.indimmediate
    AND CASE WHEN c.relreplident IN ('d', 'f') THEN i.indisprimary WHEN c.relreplident = 'i' THEN i.indisreplident END
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
WHERE c.oid = ANY (%(oids)s::int8[]::oid[]) AND k.place <= i.indnkeyatts
GROUP BY c.oid"""

_TYPES = """
WITH RECURSIVE walk(asked, modifier, base, base_modifier) AS (
    SELECT t::oid, m, t::oid, m FROM unnest(%(types)s::int8[], %(modifiers)s::int4[]) AS given(t, m)
    UNION ALL
    SELECT asked, modifier, d.typbasetype, CASE WHEN d.typtypmod >= 0 THEN d.typtypmod ELSE base_modifier END
    FROM walk JOIN pg_type d ON d.oid = base WHERE d.typtype = 'd')
SELECT asked::int8, modifier, base::int8, format_type(base, base_modifier)
FROM walk JOIN pg_type t ON t.oid = base WHERE t.typtype <> 'd'"""

_STRETCHES = """
SELECT c.oid::int8, n.nspname::text, c.relname::text,
    pg_relation_size(c.oid) / current_setting('block_size')::int8
FROM pg_partition_tree(%(oid)s::int8::oid) t JOIN pg_class c ON c.oid = t.relid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE t.isleaf AND c.relkind = 'r'
UNION ALL
SELECT c.oid::int8, n.nspname::text, c.relname::text,
    pg_relation_size(c.oid) / current_setting('block_size')::int8
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = %(oid)s::int8::oid AND c.relkind = 'r' AND NOT EXISTS (SELECT FROM pg_partition_tree(c.oid))
ORDER BY 1"""
