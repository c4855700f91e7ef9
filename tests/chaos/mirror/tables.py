"""The tables under attack, and the transactions that pgbench runs on them.

Besides pgbench's own tables (one of them without a key) there are tables for what is hard to mirror: values that are
stored apart and left out of updates, keys that change and change places, rows that go and come again, truncates, NULLs,
rolled back parts of transactions, many rows in one transaction, and a table that appears late.
"""

from __future__ import annotations

from collections.abc import Mapping

LATE = "public.late"
TABLES = (
    "public.pgbench_accounts",
    "public.pgbench_branches",
    "public.pgbench_tellers",
    "public.pgbench_history",
    "public.items",
    "public.words",
    LATE,
)

PREPARE = """
ALTER TABLE pgbench_history REPLICA IDENTITY FULL;
CREATE SEQUENCE item_ids;
CREATE TABLE items (
    id bigint DEFAULT nextval('item_ids'), part text, big text, small integer, note varchar(200), at timestamptz,
    amount numeric(12,3), ratio double precision, data jsonb, flag boolean, raw bytea, tags text[],
    PRIMARY KEY (id, part)
);
ALTER TABLE items ALTER big SET STORAGE EXTERNAL;
CREATE FUNCTION some_item(parts text, number bigint) RETURNS items LANGUAGE sql VOLATILE AS $$
    SELECT nextval('item_ids'), parts, repeat(md5(random()::text), 100 + (number % 100)::int), number::int,
        nullif('note ' || number % 5, 'note 0'), clock_timestamp(), number / 7.0, number / 3.0::float8,
        jsonb_build_object('n', number, 'text', E'a\\nb"', 'none', NULL), nullif(number % 3, 0) = 1,
        decode(md5(number::text), 'hex'), ARRAY['x', NULL, 'y,' || number]
$$;
INSERT INTO items SELECT item.* FROM generate_series(1, 3000) i, some_item('first', i) item;
CREATE TABLE words (id integer PRIMARY KEY, word text);
INSERT INTO words SELECT i, 'word ' || i FROM generate_series(1, 100) i;
"""

APPEAR = """
CREATE TABLE late (id integer PRIMARY KEY, word text, big text);
ALTER TABLE late ALTER big SET STORAGE EXTERNAL;
INSERT INTO late SELECT i, 'late ' || i, repeat(md5(i::text), 100) FROM generate_series(1, 2000) i;
"""

_SOME_ITEMS = (
    "SELECT id, part FROM items WHERE id >= (SELECT random() * last_value FROM item_ids)::bigint ORDER BY id LIMIT"
)
_ALONE = "SELECT pg_advisory_xact_lock(1);"

SCRIPTS: Mapping[str, tuple[int, str]] = {
    "insert": (
        8,
        "INSERT INTO items SELECT item.* FROM generate_series(1, :some) i, some_item('p' || :client_id, i) item;",
    ),
    "touch": (
        10,
        f"UPDATE items SET small = small + 1, at = clock_timestamp() WHERE (id, part) IN ({_SOME_ITEMS} :some);",
    ),
    "nulls": (
        4,
        "UPDATE items SET note = NULL, amount = NULL, data = NULL, raw = NULL, tags = NULL, flag = NOT flag"
        f" WHERE (id, part) IN ({_SOME_ITEMS} 2);",
    ),
    "large": (
        4,
        f"UPDATE items SET big = CASE WHEN :some > 3 THEN big || 'more' END WHERE (id, part) IN ({_SOME_ITEMS} 2);",
    ),
    "rekey": (5, f"UPDATE items SET id = nextval('item_ids') WHERE (id, part) IN ({_SOME_ITEMS} 2);"),
    "part": (2, f"UPDATE items SET part = part || '+', small = NULL WHERE (id, part) IN ({_SOME_ITEMS} 1);"),
    "delete": (6, f"DELETE FROM items WHERE (id, part) IN ({_SOME_ITEMS} :some);"),
    "come back": (
        3,
        f"""BEGIN;
        WITH gone AS (DELETE FROM items WHERE (id, part) IN ({_SOME_ITEMS} 2) RETURNING id, part)
        INSERT INTO items (id, part, note) SELECT id, part || ' back', 'other' FROM gone;
        UPDATE items SET part = replace(part, ' back', '') WHERE part LIKE '% back';
        END;""",
    ),
    "half": (
        3,
        f"""BEGIN;
        UPDATE items SET small = -1 WHERE (id, part) IN ({_SOME_ITEMS} 2);
        SAVEPOINT here;
        DELETE FROM items WHERE id % 2 = 0;
        ROLLBACK TO SAVEPOINT here;
        INSERT INTO items SELECT * FROM some_item('half', 1);
        END;""",
    ),
    "undone": (1, "BEGIN; UPDATE items SET note = 'never' WHERE id % 3 = 0; ROLLBACK;"),
    "many": (1, "UPDATE items SET ratio = ratio * 1.5, small = :some WHERE id % 20 = :some;"),
    "swap": (
        4,
        f"""BEGIN;
        {_ALONE}
        UPDATE words SET id = -1 WHERE id = 2 * :some;
        UPDATE words SET id = 2 * :some WHERE id = 2 * :some + 1;
        UPDATE words SET id = 2 * :some + 1 WHERE id = -1;
        END;""",
    ),
    "words": (
        6,
        f"""BEGIN;
        {_ALONE}
        DELETE FROM words WHERE id = :some;
        INSERT INTO words SELECT i, nullif('w' || :some, 'w3') FROM generate_series(:some, :some + 3) i
        ON CONFLICT (id) DO UPDATE SET word = words.word || '.';
        END;""",
    ),
    "truncate": (
        1,
        f"""BEGIN;
        {_ALONE}
        INSERT INTO words VALUES (-7, 'not for long') ON CONFLICT DO NOTHING;
        TRUNCATE words;
        INSERT INTO words SELECT i, 'again ' || i FROM generate_series(1, 5 * :some) i;
        DELETE FROM words WHERE id = 3;
        END;""",
    ),
    "history": (
        2,
        """BEGIN;
        SELECT pg_advisory_xact_lock(2);
        INSERT INTO pgbench_history SELECT 1, 1, 1, NULL, '2026-01-01', 'twin' FROM generate_series(1, 3);
        DELETE FROM pgbench_history WHERE ctid = ANY (ARRAY(SELECT ctid FROM pgbench_history LIMIT 2));
        UPDATE pgbench_history SET delta = coalesce(delta, 0) + 1
        WHERE ctid = ANY (ARRAY(SELECT ctid FROM pgbench_history WHERE filler = 'twin' LIMIT 1));
        END;""",
    ),
    "late": (
        4,
        """DO $$
        DECLARE one integer := random() * 2000;
        BEGIN
            IF to_regclass('public.late') IS NOT NULL THEN
                UPDATE late SET word = word || '!' WHERE id = one;
                DELETE FROM late WHERE id = one + 1;
                INSERT INTO late VALUES (one + 2, 'new')
                ON CONFLICT (id) DO UPDATE SET id = late.id + 10000 + random() * 1e8;
            END IF;
        END $$;""",
    ),
}
"""Each with its weight; ``:some`` is a number from 1 to 10. pgbench's own transaction has the weight 20."""
