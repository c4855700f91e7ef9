"""Types that meet inside one batch: the column has their lowest common ancestor, values are converted."""

from __future__ import annotations

from decimal import Decimal
from itertools import permutations

from tests.warehouse.case import DUCKDB_ONLY, MODEL_ONLY, NUMERIC, Case, at, at_once, in_turn, outcome

TIME = "2024-05-01T10:00:00Z"
KINDS: dict[str, tuple[object, str]] = {
    "bool": (True, "true"),
    "int": (7, "7"),
    "float": (1.5, "1.5"),
    "string": ("x", "x"),
    "array": ([1, "y"], '[1,"y"]'),
    "timestamp": (TIME, TIME),
}
"""A value of each kind, and the text that it becomes."""
NUMBERS: dict[frozenset[str], tuple[str, dict[str, object]]] = {
    frozenset(("bool", "int")): ("INT64", {"bool": 1, "int": 7}),
    frozenset(("bool", "float")): ("FLOAT64", {"bool": 1.0, "float": 1.5}),
    frozenset(("int", "float")): ("FLOAT64", {"int": 7.0, "float": 1.5}),
    frozenset(("bool", "int", "float")): ("FLOAT64", {"bool": 1.0, "int": 7.0, "float": 1.5}),
}
"""The sets of kinds that have a number for an ancestor. Every other has STRING."""
TRIPLES = [
    ("bool", "int", "float"),
    ("float", "int", "bool"),
    ("bool", "int", "string"),
    ("string", "int", "bool"),
    ("int", "timestamp", "float"),
    ("timestamp", "timestamp", "string"),
    ("array", "bool", "timestamp"),
    ("float", "string", "timestamp"),
]


def promoted(*kinds: str) -> Case:
    """A batch of these kinds, in this order. ``[1, "y"]`` is sent without spaces, so that text is as it was sent."""
    column, values = NUMBERS.get(frozenset(kinds), ("STRING", {kind: KINDS[kind][1] for kind in kinds}))
    return at_once(
        f"a-batch-of-{'-'.join(kinds)}",
        [{"a": KINDS[kind][0], "n": number} for number, kind in enumerate(kinds)],
        outcome({"a": column, "n": "INT64"}, [{"a": values[kind], "n": number} for number, kind in enumerate(kinds)]),
        options={"infer_timestamps": True},
        engines=MODEL_ONLY,
    )


CASES: list[Case] = [
    *(promoted(*pair) for pair in permutations(KINDS, 2)),
    *(promoted(*triple) for triple in TRIPLES),
    at_once(
        "every-pair-in-columns-side-by-side",
        [
            {f"{one}_{other}": KINDS[one][0] for one, other in permutations(KINDS, 2)},
            {f"{one}_{other}": KINDS[other][0] for one, other in permutations(KINDS, 2)},
        ],
        outcome(
            {
                f"{one}_{other}": NUMBERS.get(frozenset((one, other)), ("STRING", {}))[0]
                for one, other in permutations(KINDS, 2)
            },
            [
                {
                    f"{pair[0]}_{pair[1]}": NUMBERS[frozenset(pair)][1][pair[place]]
                    if frozenset(pair) in NUMBERS
                    else KINDS[pair[place]][1]
                    for pair in permutations(KINDS, 2)
                }
                for place in (0, 1)
            ],
        ),
        options={"infer_timestamps": True},
    ),
    at_once(
        "two-timestamps-of-different-zones-stay-timestamps",
        [{"a": TIME}, {"a": "2024-05-01T12:00:00.25+02:00"}],
        outcome({"a": "TIMESTAMP"}, [{"a": at(TIME)}, {"a": at("2024-05-01T10:00:00.250000Z")}]),
        options={"infer_timestamps": True},
        engines=MODEL_ONLY,
    ),
    at_once(
        "without-inference-a-timestamp-is-text-like-any",
        [{"a": TIME}, {"a": "2024-05-01T12:00:00.25+02:00"}],
        outcome({"a": "STRING"}, [{"a": TIME}, {"a": "2024-05-01T12:00:00.25+02:00"}]),
        engines=MODEL_ONLY,
    ),
    at_once(
        "numbers-that-become-text-keep-their-spelling",
        [b'{"a":1.50}', b'{"a":1E5}', b'{"a":"x"}', b'{"a":-0}', b'{"a":9223372036854775808}', b'{"a":1e400}'],
        outcome({"a": "STRING"}, [{"a": text} for text in ("1.50", "1E5", "x", "-0", "9223372036854775808", "1e400")]),
        one_frame=True,
    ),
    at_once(
        "an-integer-that-a-double-would-round-is-exact-in-a-numeric",
        [b'{"a":1.5}', b'{"a":9007199254740993}', b'{"a":-9223372036854775807}', b'{"a":true}'],
        outcome(
            {"a": "FLOAT64"},
            [{"a": Decimal(text)} for text in ("1.5", "9007199254740993", "-9223372036854775807", "1")],
        ),
        engines=NUMERIC,
    ),
    *(
        at_once(
            f"an-integer-that-a-double-would-round-is-kept-aside-{where}",
            [
                b'{"a":1.5}',
                b'{"a":9007199254740993}',
                b'{"a":-9223372036854775807}',
                b'{"a":4611686018427387904}',
                b'{"a":4611686018427388000}',
            ],
            outcome(
                {"a": kind, "_unmapped": "JSON"},
                [
                    {"a": 1.5},
                    {"_unmapped": {"a": 9007199254740993}},
                    {"_unmapped": {"a": -9223372036854775807}},
                    {"_unmapped": {"a": 4611686018427387904}},  # a reader sees 4.611686018427388e+18
                    {"a": 2.0**62},
                ],
            ),
            options=options,
            engines=engines,
        )
        for where, kind, options, engines in [
            ("by-duckdb", "FLOAT64", {}, DUCKDB_ONLY),
            ("where-doubles-are-asked-for", "double precision", {"float": "double"}, NUMERIC),
        ]
    ),
    at_once(
        "a-float-has-the-same-digits-beside-a-large-integer-as-alone",
        [b'{"a":9007199254740993}', b'{"a":0.123456789012345678}'],
        outcome({"a": "FLOAT64"}, [{"a": Decimal(9007199254740993)}, {"a": Decimal("0.123456789012345678")}]),
        engines=NUMERIC,
    ),
    at_once(
        "an-integer-beyond-64-bits-beside-a-float-makes-text",
        [b'{"a":1.5}', b'{"a":9223372036854775808}'],
        outcome({"a": "STRING"}, [{"a": "1.5"}, {"a": "9223372036854775808"}]),
    ),
    at_once(
        "an-integer-that-a-double-keeps-stays-a-number",
        [b'{"a":0.5}', b'{"a":9007199254740992}'],
        outcome({"a": "FLOAT64"}, [{"a": 0.5}, {"a": 9007199254740992.0}]),
    ),
    at_once(
        "promotion-is-per-column",
        [{"a": 1, "b": "x", "c": True}, {"a": 1.5, "b": "y", "c": 2}, {"a": None, "b": 3, "c": False}],
        outcome(
            {"a": "FLOAT64", "b": "STRING", "c": "INT64"},
            [{"a": 1.0, "b": "x", "c": 1}, {"a": 1.5, "b": "y", "c": 2}, {"b": "3", "c": 0}],
        ),
        engines=MODEL_ONLY,
    ),
    at_once(
        "promotion-over-a-collision-looks-at-winners-only",
        [{"a_b": 1, "a": {"b": "x"}}, {"a_b": 2}],
        outcome({"a_b": "INT64", "_unmapped": "JSON"}, [{"a_b": 1, "_unmapped": {"/a/b": "x"}}, {"a_b": 2}]),
        engines=MODEL_ONLY,
    ),
    in_turn(
        "a-wider-batch-after-a-narrow-one-goes-by-value",
        [[{"a": 1}], [{"a": 2}, {"a": 2.5}, {"a": 3.0}]],
        outcome({"a": "INT64", "_unmapped": "JSON"}, [{"a": 1}, {"a": 2}, {"_unmapped": {"a": 2.5}}, {"a": 3}]),
    ),
    in_turn(
        "a-batch-of-text-goes-into-an-integer-column-value-by-value",
        [[{"a": 1}], [{"a": 2}, {"a": "x"}, {"a": True}, {"a": [3]}]],
        outcome(
            {"a": "INT64", "_unmapped": "JSON"},
            # In a batch with text, true is still true: into a column of integers it goes as 1.
            [{"a": 1}, {"a": 2}, {"_unmapped": {"a": "x"}}, {"a": 1}, {"_unmapped": {"a": [3]}}],
        ),
    ),
    in_turn(
        "a-mixed-batch-goes-into-a-boolean-column-value-by-value",
        [[{"a": True}], [{"a": False}, {"a": 1}, {"a": 0}, {"a": 2}, {"a": "x"}]],
        outcome(
            {"a": "BOOL", "_unmapped": "JSON"},
            [{"a": True}, {"a": False}, {"a": True}, {"a": False}, {"_unmapped": {"a": 2}}, {"_unmapped": {"a": "x"}}],
        ),
    ),
    at_once(
        "numeric-overflow-inside-a-promotion-is-kept-aside",
        [{"a": 1}, {"a": 1e30}, {"a": True}],
        outcome({"a": "FLOAT64", "_unmapped": "JSON"}, [{"a": 1.0}, {"_unmapped": {"a": 1e30}}, {"a": 1.0}]),
        engines=NUMERIC,
    ),
]
