"""Which table an event goes to: fixed names and templates."""

from __future__ import annotations

from collections.abc import Mapping

from tests.warehouse.case import MODEL_ONLY, Case, Contents, Event, at, either_way, in_turn, mapping, move, outcome

TIME = "2024-05-01T10:00:00Z"
BY_TYPE = "{{ event_type }}"
NAMES: list[tuple[str, str, Event, str]] = [
    ("by-a-field", BY_TYPE, {"event_type": "click"}, "click"),
    ("by-a-nested-field", "{{ ctx.kind }}", {"ctx": {"kind": "view"}}, "view"),
    ("by-a-field-and-text", "raw_{{ event_type }}_v1", {"event_type": "click"}, "raw_click_v1"),
    ("by-a-number", BY_TYPE, {"event_type": 42}, "42"),
    ("by-a-boolean", BY_TYPE, {"event_type": True}, "true"),
    ("by-a-default", "{{ event_type or 'other' }}", {"a": 1}, "other"),
    ("by-a-filter", "{{ event_type | upper }}", {"event_type": "click"}, "click"),
    ("by-a-condition", "{% if n > 5 %}large{% else %}small{% endif %}", {"n": 7}, "large"),
    ("in-capitals", BY_TYPE, {"event_type": "Sign Up"}, "sign_up"),
    ("in-unicode", BY_TYPE, {"event_type": "Größe"}, "gr__e"),
    ("of-an-emoji", BY_TYPE, {"event_type": "😀"}, "_"),
    ("with-spaces-around", BY_TYPE, {"event_type": "  click "}, "click"),
    ("with-a-quote-and-more", BY_TYPE, {"event_type": 'a"; DROP TABLE users; --'}, "a___drop_table_users____"),
    ("with-a-dot", BY_TYPE, {"event_type": "public.users"}, "public_users"),
    ("with-a-template-in-it", BY_TYPE, {"event_type": "{{ 7 * 7 }}"}, "___7___7___"),
    ("that-is-a-reserved-word", BY_TYPE, {"event_type": "select"}, "select"),
    ("with-a-percent-sign", BY_TYPE, {"event_type": "100%s"}, "100_s"),
    ("fixed-and-in-need-of-cleaning", "My Events", {"event_type": "x"}, "my_events"),
]
FAILING: list[tuple[str, str, Event, list[str]]] = [
    ("a-way-out-of-the-sandbox", "{{ a.__class__.__mro__ }}", {"a": "x"}, ["template", "__class__"]),
    ("an-object-for-a-name", BY_TYPE, {"event_type": {"a": 1}}, ["template"]),
    ("a-list-for-a-name", BY_TYPE, {"event_type": [1]}, ["template"]),
    ("a-division-by-zero", "{{ 1 / n }}", {"n": 0}, ["template", "zero"]),
    ("a-table-of-our-own", BY_TYPE, {"event_type": "_penstock_loads"}, ["_penstock_loads"]),
]
EMPTY: list[tuple[str, str, Event]] = [
    ("a-missing-field", BY_TYPE, {"a": 1}),
    ("a-missing-nested-field", "{{ a.b.c }}", {"a": {"x": 1}}),
    ("an-empty-field", BY_TYPE, {"event_type": ""}),
    ("a-null", BY_TYPE, {"event_type": None}),
    ("spaces", BY_TYPE, {"event_type": "   "}),
    ("a-condition", "{% if keep %}events{% endif %}", {"keep": False}),
]


def columns_of(event: Event) -> tuple[dict[str, str], dict[str, object]]:
    """The columns and the row of a small event."""
    assert isinstance(event, Mapping)
    kinds: dict[type, str] = {str: "STRING", int: "INT64", bool: "BOOL"}
    flat = {
        **{name: value for name, value in event.items() if not isinstance(value, dict)},
        **{
            f"{name}_{key}": inner
            for name, value in event.items()
            if isinstance(value, dict)
            for key, inner in value.items()
        },
    }
    return {name: kinds[type(value)] for name, value in flat.items()}, flat


def named(name: str, template: str, event: Event, table: str) -> Case:
    columns, row = columns_of(event)
    return either_way(
        f"a-table-{name}",
        [event],
        outcome(tables={table: Contents(columns, [row])}),
        options={"table": template},
        engines=MODEL_ONLY,
    )


CASES: list[Case] = [
    *(named(*row) for row in NAMES),
    either_way(
        "tables-with-odd-names-on-every-engine",
        [
            {"event_type": str(event["event_type"])}
            for _, template, event, _ in NAMES
            if template == BY_TYPE and isinstance(event, dict)
        ],
        outcome(
            tables={
                table: Contents({"event_type": "STRING"}, rows)
                for table in dict.fromkeys(table for _, template, _, table in NAMES if template == BY_TYPE)
                for rows in [
                    [
                        {"event_type": str(event["event_type"])}
                        for _, template, event, name in NAMES
                        if template == BY_TYPE and name == table and isinstance(event, dict)
                    ]
                ]
            }
        ),
        options={"table": BY_TYPE},
    ),
    *(
        either_way(
            f"a-table-name-fails-for-{name}",
            [event],
            outcome(failed={0: words}),
            options={"table": template},
            engines=MODEL_ONLY,
        )
        for name, template, event, words in FAILING
    ),
    *(
        either_way(
            f"a-table-name-is-empty-for-{name}",
            [event],
            outcome(skipped=1),
            options={"table": template},
            engines=MODEL_ONLY,
        )
        for name, template, event in EMPTY
    ),
    either_way(
        "tables-by-month",
        [
            {"event_type": "click", "_timestamp": "2024-05-01T10:00:00.000000Z"},
            {"event_type": "click", "_timestamp": "2024-06-01T00:00:00.000000Z"},
            {"event_type": "view", "_timestamp": "2024-05-31T23:59:59.999999Z"},
        ],
        outcome(
            tables={
                table: Contents(
                    {"event_type": "STRING", "_timestamp": "TIMESTAMP"}, [{"event_type": kind, "_timestamp": at(time)}]
                )
                for table, kind, time in [
                    ("click_2024_05", "click", "2024-05-01T10:00:00Z"),
                    ("click_2024_06", "click", "2024-06-01T00:00:00Z"),
                    ("view_2024_05", "view", "2024-05-31T23:59:59.999999Z"),
                ]
            }
        ),
        options={"table": "{{ event_type }}_{{ _timestamp.strftime('%Y_%m') }}"},
    ),
    either_way(
        "tables-by-month-without-a-time-fail",
        [{"event_type": "click", "_timestamp": "soon"}],
        outcome(failed={0: ["template"]}),
        options={"table": "{{ event_type }}_{{ _timestamp.strftime('%Y_%m') }}"},
        engines=MODEL_ONLY,
    ),
    either_way(
        "two-tables-have-columns-of-their-own",
        [{"t": "a", "x": 1}, {"t": "b", "x": "text", "y": True}, {"t": "a", "x": 2}],
        outcome(
            tables={
                "a": Contents({"t": "STRING", "x": "INT64"}, [{"t": "a", "x": 1}, {"t": "a", "x": 2}]),
                "b": Contents({"t": "STRING", "x": "STRING", "y": "BOOL"}, [{"t": "b", "x": "text", "y": True}]),
            },
        ),
        options={"table": "{{ t }}"},
    ),
    either_way(
        "tables-skipped-failed-and-loaded-side-by-side",
        [{"t": "a", "x": 1}, {"x": 2}, {"t": [1]}, b"nonsense", {"t": "a", "x": 3}],
        outcome(
            tables={"a": Contents({"t": "STRING", "x": "INT64"}, [{"t": "a", "x": 1}, {"t": "a", "x": 3}])},
            failed={2: ["template"], 3: []},
            skipped=1,
        ),
        options={"table": "{{ t }}"},
    ),
    either_way(
        # The table is chosen first, then the event is mapped.
        "a-template-sees-the-event-before-its-steps",
        [{"event_type": "click", "a": 1}],
        outcome(tables={"click": Contents({"kind": "STRING", "a": "INT64"}, [{"kind": "click", "a": 1}])}),
        steps=mapping(move("/event_type", "/kind")),
        options={"table": BY_TYPE},
    ),
    either_way(
        "a-template-does-not-see-what-steps-make",
        [{"a": 1}],
        outcome(skipped=1),
        steps=mapping({"action": "constant", "dst": "/event_type", "value": "made"}),
        options={"table": BY_TYPE},
        engines=MODEL_ONLY,
    ),
    either_way(
        "two-names-that-clean-up-to-one-share-a-table",
        [{"t": "sign-up"}, {"t": "Sign Up"}],
        outcome(tables={"sign_up": Contents({"t": "STRING"}, [{"t": "sign-up"}, {"t": "Sign Up"}])}),
        options={"table": "{{ t }}"},
        engines=MODEL_ONLY,
    ),
    in_turn(
        "a-table-per-batch",
        [[{"t": "a"}], [{"t": "b"}], [{"t": "a", "n": 1}]],
        outcome(
            tables={
                "a": Contents({"t": "STRING", "n": "INT64"}, [{"t": "a"}, {"t": "a", "n": 1}]),
                "b": Contents({"t": "STRING"}, [{"t": "b"}]),
            },
            ddl=[
                'CREATE TABLE IF NOT EXISTS "a" ("t" text)',
                'CREATE TABLE IF NOT EXISTS "b" ("t" text)',
                'ALTER TABLE "a" ADD COLUMN "n" bigint',
            ],
        ),
        options={"table": "{{ t }}"},
    ),
]
