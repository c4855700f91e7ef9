"""Column names: folding, odd characters, collisions. (Long names are in ``test_long_names.py``.)"""

from __future__ import annotations

from tests.warehouse.case import DUCKDB_ONLY, MODEL_ONLY, NUMERIC, Case, Event, either_way, in_turn, outcome

NAMES: list[tuple[str, str]] = [
    ("UserID", "userid"),
    ("a.b-c d/e", "a_b_c_d_e"),
    ("İx", "ix"),
    ("ß", "_"),  # simple folding leaves it as it is, and it is no letter of ours
    ("Ａ", "_"),  # full width: its lower case is full width too
    ("\u212a", "k"),  # the Kelvin sign folds to k
    ("é", "_"),
    ("😀", "_"),
    ("日本語", "___"),
    ("", "_unnamed"),
    ("1st", "1st"),
    ("42", "42"),
    ("select", "select"),
    ("Order", "order"),
    ("user", "user"),
    ("_", "_"),
    ("__a__", "__a__"),
    (" a ", "_a_"),
    ("a\tb\nc", "a_b_c"),
    ('a"b', "a_b"),
    ("a'b", "a_b"),
    ("a\\b", "a_b"),
    ("a`b", "a_b"),
    ("$ref", "_ref"),
    ("@type", "_type"),
    ("a%b", "a_b"),
    ("{{ a }}", "___a___"),
    ("\u0000", "_"),
]
"""A key, and the column that it becomes."""
SYSTEM_COLUMNS = ["tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"]
"""No column of PostgreSQL can be called so."""

COLLISIONS: list[tuple[str, Event, dict[str, object], dict[str, object]]] = [
    # The loser stands under its path: its column's name is taken, and two losers of one name must not meet again.
    ("flat-first", {"a_b": 1, "a": {"b": 2}}, {"a_b": 1}, {"/a/b": 2}),
    ("nested-first", {"a": {"b": 2}, "a_b": 1}, {"a_b": 2}, {"/a_b": 1}),
    ("upper-first", {"A": 1, "a": 2}, {"a": 1}, {"/a": 2}),
    ("lower-first", {"a": 2, "A": 1}, {"a": 2}, {"/A": 1}),
    ("of-three", {"A": 1, "a": 2, "ａ": 0, "à": 9, "á": 8}, {"a": 1, "_": 0}, {"/a": 2, "/à": 9, "/á": 8}),
    (
        "of-three-ways-to-nest",
        {"a": {"b": {"c": 1}, "b_c": 2}, "a_b": {"c": 3}},
        {"a_b_c": 1},
        {"/a/b_c": 2, "/a_b/c": 3},
    ),
    ("with-an-array", {"a b": [1, 2], "a-b": 3}, {"a_b": "[1,2]"}, {"/a-b": 3}),
    ("that-an-array-loses", {"a-b": 3, "a b": [1, {"x": 2}]}, {"a_b": 3}, {"/a b": [1, {"x": 2}]}),
    ("where-a-null-has-no-claim", {"A": None, "a": 2}, {"a": 2}, {}),
    ("where-an-empty-object-has-no-claim", {"A": {}, "a": 2}, {"a": 2}, {}),
    ("of-empty-keys", {"": 1, "_unnamed": 2}, {"_unnamed": 1}, {"/_unnamed": 2}),
]


def kind(value: object) -> str:
    return "STRING" if isinstance(value, str) else "INT64"


CASES: list[Case] = [
    *(
        either_way(
            f"the-key-{number}-{key!a}-is-the-column-{name}",
            [{key: 1, "n": 2}],
            outcome({name: "INT64", "n": "INT64"}, [{name: 1, "n": 2}]),
            engines=MODEL_ONLY,
        )
        for number, (key, name) in enumerate(NAMES)
    ),
    either_way(
        "odd-keys-are-columns-of-every-engine",
        [{key: 1, "n": 2} for key, _ in NAMES],
        outcome({**{name: "INT64" for _, name in NAMES}, "n": "INT64"}, [{name: 1, "n": 2} for _, name in NAMES]),
    ),
    *(
        either_way(
            f"a-collision-{name}",
            [event],
            outcome(
                {**{key: kind(value) for key, value in row.items()}, **({"_unmapped": "JSON"} if lost else {})},
                [{**row, **({"_unmapped": lost} if lost else {})}],
            ),
            engines=MODEL_ONLY,
        )
        for name, event, row, lost in COLLISIONS
    ),
    either_way(
        "a-collision-on-every-engine",
        [{"a_b": 1, "a": {"b": 2}}, {"a": {"b": 2}, "a_b": 1}, {"a_b": 3}],
        outcome(
            {"a_b": "INT64", "_unmapped": "JSON"},
            [{"a_b": 1, "_unmapped": {"/a/b": 2}}, {"a_b": 2, "_unmapped": {"/a_b": 1}}, {"a_b": 3}],
        ),
    ),
    either_way(
        # Each event by itself has no collision, so what becomes of it cannot depend on its neighbours.
        "two-spellings-in-two-events-fill-one-column",
        [{"UserId": 1}, {"userid": 2}, {"USERID": 3}],
        outcome({"userid": "INT64"}, [{"userid": 1}, {"userid": 2}, {"userid": 3}]),
    ),
    in_turn(
        "a-collision-and-a-conflict-in-one-row",
        [[{"a": 1}], [{"a": "x", "A": "y"}]],
        outcome({"a": "INT64", "_unmapped": "JSON"}, [{"a": 1}, {"_unmapped": {"a": "x", "/A": "y"}}]),
        engines=MODEL_ONLY,
    ),
    either_way(
        "a-field-called-like-the-spare-column-is-kept-in-it",
        [{"_unmapped": 5, "a": 1}, {"_unmapped": "x"}],
        outcome(
            {"a": "INT64", "_unmapped": "JSON"},
            [{"a": 1, "_unmapped": {"/_unmapped": 5}}, {"_unmapped": {"/_unmapped": "x"}}],
        ),
    ),
    either_way(
        "a-field-inside-one-called-like-the-spare-column-is-a-column",
        [{"_unmapped": {"x": 1}}],
        outcome({"_unmapped_x": "INT64"}, [{"_unmapped_x": 1}]),
        engines=MODEL_ONLY,
    ),
    either_way(
        "an-empty-key-inside-another",
        [{"a": {"": 1, "b": {"": {"": "x"}}}}],
        outcome(
            {"a__unnamed": "INT64", "a_b__unnamed__unnamed": "STRING"},
            [{"a__unnamed": 1, "a_b__unnamed__unnamed": "x"}],
        ),
        engines=MODEL_ONLY,
    ),
    either_way(
        "names-of-system-columns-are-kept-aside-where-there-are-some",
        [{"n": 1, **dict.fromkeys(SYSTEM_COLUMNS, "x")}, {"Ctid": 5}],
        outcome(
            {"n": "INT64", "_unmapped": "JSON"},
            [{"n": 1, "_unmapped": dict.fromkeys(SYSTEM_COLUMNS, "x")}, {"_unmapped": {"ctid": 5}}],
        ),
        engines=NUMERIC,
    ),
    either_way(
        "names-of-system-columns-of-others-are-columns",
        [{"rowid": 1, "ctid": 2, "xmin": 3}],
        outcome({"rowid": "INT64", "ctid": "INT64", "xmin": "INT64"}, [{"rowid": 1, "ctid": 2, "xmin": 3}]),
        engines=DUCKDB_ONLY,
    ),
    either_way(
        "reserved-words-are-columns",
        [{"select": 1, "from": "x", "where": True, "table": 1.5, "user": "u", "order": 2, "primary": 3, "null": 4}],
        outcome(
            {
                "select": "INT64",
                "from": "STRING",
                "where": "BOOL",
                "table": "FLOAT64",
                "user": "STRING",
                "order": "INT64",
                "primary": "INT64",
                "null": "INT64",
            },
            [{"select": 1, "from": "x", "where": True, "table": 1.5, "user": "u", "order": 2, "primary": 3, "null": 4}],
        ),
    ),
]
