"""What nobody should send: it loads, whole, or fails with a reason, and never takes its neighbours with it."""

from __future__ import annotations

from tests.warehouse.case import DUCKDB_ONLY, MODEL_ONLY, NUMERIC, Case, Existing, at_once, either_way, in_turn, outcome

MEGABYTE = "x" * 1_000_000
TEXTS = [
    "",
    '"',
    '""',
    "'",
    "''",
    "`",
    "a,b",
    "a\nb",
    "a\r\nb",
    "\t",
    "\\",
    "\\n",
    "\\.",
    "\\N",
    "\\x00",
    "NULL",
    "null",
    "NaN",
    "\u2028",
    "\u0007",
    "日本語",
    "😀",
    "'); DROP TABLE events; --",
    '"; DROP TABLE events; --',
    "$1",
    "%s",
    "{}",
    "{{ a }}",
    "\ufeff",
    " leading",
    "trailing ",
    "e\u0301",
]
HOSTILE = [
    'a"; DROP TABLE events; --',
    "a'); DELETE FROM events; --",
    "events.a",
    "a) VALUES (1",
    "%s",
    "$1",
    "\\",
    ";",
]
WIDE = {f"k{number}": number for number in range(5_000)}


def deep(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


CASES: list[Case] = [
    either_way(
        "texts-of-every-kind-arrive-as-they-are",
        [{"n": number, "t": text} for number, text in enumerate(TEXTS)][:8],
        outcome({"n": "INT64", "t": "STRING"}, [{"n": number, "t": text} for number, text in enumerate(TEXTS[:8])]),
        engines=MODEL_ONLY,
    ),
    at_once(
        "texts-of-every-kind-in-one-batch-arrive-as-they-are",
        [{"n": number, "t": text} for number, text in enumerate(TEXTS)],
        outcome({"n": "INT64", "t": "STRING"}, [{"n": number, "t": text} for number, text in enumerate(TEXTS)]),
    ),
    at_once(
        "texts-of-every-kind-with-a-key",
        [{"n": number, "t": text} for number, text in enumerate(TEXTS)],
        outcome({"n": "INT64", "t": "STRING"}, [{"n": number, "t": text} for number, text in enumerate(TEXTS)]),
        options={"primary_key": ["n"]},
    ),
    at_once(
        "texts-of-every-kind-kept-aside",
        [{"n": number, "t": text} for number, text in enumerate(TEXTS)],
        outcome(
            {"n": "INT64", "_unmapped": "JSON"},
            [{"n": number, "_unmapped": {"t": text}} for number, text in enumerate(TEXTS)],
        ),
        options={"schema": "freeze"},
        existing=Existing({"n": "INT64"}),
    ),
    either_way(
        "names-that-would-be-statements",
        [{key: number} for number, key in enumerate(HOSTILE)],
        outcome(
            {
                "a___drop_table_events____": "INT64",
                "a____delete_from_events____": "INT64",
                "events_a": "INT64",
                "a__values__1": "INT64",
                "_s": "INT64",
                "_1": "INT64",
                "_": "INT64",
            },
            [
                {"a___drop_table_events____": 0},
                {"a____delete_from_events____": 1},
                {"events_a": 2},
                {"a__values__1": 3},
                {"_s": 4},
                {"_1": 5},
                {"_": 6},
                {"_": 7},
            ],
        ),
    ),
    either_way(
        "a-megabyte-of-text",
        [{"a": MEGABYTE, "n": 1}],
        outcome({"a": "STRING", "n": "INT64"}, [{"a": MEGABYTE, "n": 1}]),
    ),
    either_way(
        "a-megabyte-of-text-kept-aside",
        [{"a": MEGABYTE, "n": 1}],
        outcome({"a": "INT64", "n": "INT64", "_unmapped": "JSON"}, [{"n": 1, "_unmapped": {"a": MEGABYTE}}]),
        existing=Existing({"a": "INT64"}),
    ),
    either_way(
        "an-array-two-hundred-levels-deep",
        [b'{"a":' + b"[" * 200 + b"]" * 200 + b"}"],
        outcome({"a": "STRING"}, [{"a": "[" * 200 + "]" * 200}]),
    ),
    either_way(
        "five-thousand-keys-of-which-nine-hundred-have-columns",
        [WIDE],
        outcome(
            {**{f"k{number}": "INT64" for number in range(900)}, "_unmapped": "JSON"},
            [{**{f"k{n}": n for n in range(900)}, "_unmapped": {f"k{n}": n for n in range(900, 5_000)}}],
        ),
        options={"max_columns": 900},
    ),
    either_way(
        "half-a-surrogate-pair-stays-as-its-escape",
        [b'{"a":"x\\ud800y","n":1}', b'{"a":"\\udc00\\ud800","n":2}'],
        outcome({"a": "STRING", "n": "INT64"}, [{"a": "x\\ud800y", "n": 1}, {"a": "\\udc00\\ud800", "n": 2}]),
    ),
    either_way(
        "half-a-surrogate-pair-in-a-key",
        [b'{"\\ud800":1,"n":2}'],
        # As in text: no character, but the six that escape it.
        outcome({"_ud800": "INT64", "n": "INT64"}, [{"_ud800": 1, "n": 2}]),
        engines=MODEL_ONLY,
    ),
    either_way(
        "half-a-surrogate-pair-kept-aside",
        [b'{"a":"x","A":"\\ud800","n":1}'],
        outcome(
            {"a": "STRING", "n": "INT64", "_unmapped": "JSON"}, [{"a": "x", "n": 1, "_unmapped": {"/A": "\\ud800"}}]
        ),
    ),
    either_way(
        "nul-is-taken-out-where-it-cannot-be-stored",
        [b'{"a":"x\\u0000y"}', b'{"a":"\\u0000"}'],
        outcome({"a": "STRING"}, [{"a": "xy"}, {"a": ""}]),
        engines=NUMERIC,
    ),
    either_way(
        "nul-stays-where-it-can-be-stored",
        [b'{"a":"x\\u0000y"}'],
        outcome({"a": "STRING"}, [{"a": "x\0y"}]),
        engines=DUCKDB_ONLY,
    ),
    either_way(
        "nul-that-is-kept-aside-stays-as-its-escape-where-it-cannot-be-stored",
        [b'{"a":1,"b":"x\\u0000y"}'],
        outcome({"a": "INT64", "_unmapped": "JSON"}, [{"a": 1, "_unmapped": {"b": "x\\u0000y"}}]),
        options={"schema": "freeze"},
        existing=Existing({"a": "INT64"}),
        engines=NUMERIC,
    ),
    either_way(
        "nul-that-is-kept-aside-stays-where-it-can-be-stored",
        [b'{"a":1,"b":"x\\u0000y"}'],
        outcome({"a": "INT64", "_unmapped": "JSON"}, [{"a": 1, "_unmapped": '{"b":"x\\u0000y"}'}]),
        options={"schema": "freeze"},
        existing=Existing({"a": "INT64"}),
        engines=DUCKDB_ONLY,
    ),
    in_turn(
        "odd-characters-that-are-kept-aside-are-kept-by-field",
        [
            [{"k": 1, "a": 1, "b": 2, "c": 3}],
            [b'{"k":1,"a":"x\\u0000"}', b'{"k":1,"c":"\\ud800"}'],
            [b'{"k":1,"b":"y\\u0000"}'],
            [{"k": 1, "a": 5}],
        ],
        outcome(
            {"k": "INT64", "a": "INT64", "b": "INT64", "c": "INT64", "_unmapped": "JSON"},
            [{"k": 1, "a": 5, "_unmapped": {"b": "y\\u0000", "c": "\\ud800"}}],
        ),
        options={"primary_key": ["k"]},
        engines=NUMERIC,
    ),
    either_way(
        "nul-in-an-array",
        [b'{"a":["x\\u0000y"]}'],
        # In an array it is an escape, six characters of text.
        outcome({"a": "STRING"}, [{"a": '["x\\u0000y"]'}]),
        engines=MODEL_ONLY,
    ),
    either_way(
        # As every JSON reader does: a key that comes again replaces what it said before. Here that is not lost.
        "a-key-twice-the-last-one-counts",
        [b'{"a":1,"a":2,"n":1}', b'{"a":{"x":1},"a":{"y":2},"n":2}'],
        outcome(
            {"a": "INT64", "n": "INT64", "a_y": "INT64", "_unmapped": "JSON"},
            [{"a": 2, "n": 1, "_unmapped": {"/a#1": 1}}, {"a_y": 2, "n": 2, "_unmapped": {"/a/x#1": 1}}],
        ),
    ),
    either_way(
        "numbers-beyond-every-type-kept-aside",
        [b'{"a":1e400,"n":1}', b'{"a":9223372036854775808,"n":2}', b'{"a":-1e-400,"n":3}'],
        outcome(
            {"a": "INT64", "n": "INT64", "_unmapped": "JSON"},
            [
                {"n": 1, "_unmapped": '{"a":1e400}'},
                {"n": 2, "_unmapped": '{"a":9223372036854775808}'},
                {"n": 3, "_unmapped": '{"a":-1e-400}'},
            ],
        ),
        existing=Existing({"a": "INT64", "n": "INT64"}),
        engines=MODEL_ONLY,
    ),
    either_way(
        "whitespace-of-every-kind-between-tokens",
        [b' \r\n\t{ "a" :\n1 ,\t"b" : [ 1 , 2 ] } \n'],
        outcome({"a": "INT64", "b": "STRING"}, [{"a": 1, "b": "[1,2]"}]),
        engines=MODEL_ONLY,
    ),
    either_way(
        "json-that-ends-too-early-fails-alone",
        [
            {"a": 1},
            b'{"a":',
            b'{"a":1',
            b'{"a":"x',
            b'{"a":1,}',
            b"{'a':1}",
            b'{"a":01}',
            b'{"a":NaN}',
            b"\xff",
            {"a": 2},
        ],
        outcome({"a": "INT64"}, [{"a": 1}, {"a": 2}], failed={number: [] for number in range(1, 9)}),
    ),
    either_way(
        "bytes-that-are-no-text-fail-alone",
        [b'{"a":"\xff\xfe"}', {"a": "fine"}],
        outcome({"a": "STRING"}, [{"a": "fine"}], failed={0: []}),
        engines=MODEL_ONLY,
    ),
    in_turn(
        "a-thousand-columns-one-at-a-time",
        [[{f"c{number}": number} for number in range(start, start + 25)] for start in range(0, 100, 25)],
        outcome({f"c{number}": "INT64" for number in range(100)}, [{f"c{number}": number} for number in range(100)]),
        engines=MODEL_ONLY,
    ),
    at_once(
        "a-poisoned-conflict-among-many-rows",
        [{"n": number, "a": "poison" if number == 143 else number} for number in range(300)],
        outcome(
            {"n": "INT64", "a": "INT64", "_unmapped": "JSON"},
            [{"n": n, "a": n} if n != 143 else {"n": n, "_unmapped": {"a": "poison"}} for n in range(300)],
        ),
        existing=Existing({"n": "INT64", "a": "INT64"}),
    ),
]
