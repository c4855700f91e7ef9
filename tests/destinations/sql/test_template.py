"""What a template costs is bounded, when it is read and when it is run, whatever it says and an event holds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.destinations.duckdb.config import DuckdbConfig
from penstock.destinations.sql.stage.table_name import TableChooser
from penstock.destinations.sql.stage.template import MAX_TEXT, EventTemplate

EVENT = {
    "a": "x" * 40_000,
    "b": "xyz" * 10_000,
    "n": 10**12,
    "list": ["item"] * 5_000,
    "deep": {"er": {"est": "v"}},
    "fmt": "%Y" * 20_000,
    "wide": "%999999999Y",
    "_timestamp": "2024-05-01T10:00:00Z",
}

JAIL = """
import json, resource, sys, time
from penstock.destinations.sql.stage.table_name import TableChooser
import pyarrow as pa
event = pa.array([sys.stdin.readline().encode()], pa.binary())
TableChooser("{{ a }}", 63).choose(event)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 256 * 2**20, resource.getrlimit(resource.RLIMIT_AS)[1]))
for line in sys.stdin:
    started = time.process_time()
    try:
        (choice,) = TableChooser(json.loads(line), 63).choose(event)
        word = choice.problem or "named"
    except ValueError as error:
        word = "refused"
    print(json.dumps([word, time.process_time() - started]), flush=True)
"""
CPU_SECONDS = 5.0
"""Far more than a template may take; one that is not bounded takes minutes, or all memory."""


class Jail:
    """A process with little memory, that reads templates and runs them over one event."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", JAIL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._say(json.dumps(EVENT))

    def run(self, template: str) -> str:
        self._say(json.dumps(template))
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer, f"{template!r} ended the process"
        word, seconds = json.loads(answer)
        assert not word.endswith("failed: "), f"{template!r} took all memory"
        assert seconds < CPU_SECONDS, f"{template!r} took {seconds} s"
        return str(word)

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def jail() -> Iterator[Jail]:
    made = Jail()
    yield made
    made.close()


NASTY = [
    "{{ 'x' * (10**10) }}",
    "{{ 'x' * 10000000000 }}",
    "{{ 10 ** (10 ** 9) }}",
    "{{ 9 ** 9 ** 9 ** 9 }}",
    "{{ [1] * 10000000000 }}",
    "{{ a * n }}",
    "{{ n * n * n * n * n * n * n * n * n * n * n * n }}",
    "{{ '%10000000000d' % 1 }}",
    "{{ '%*d' % (10000000000, 1) }}",
    "{{ '{:>10000000000}'.format(1) }}",
    "{{ '{x:>10000000000}'.format_map({'x': 1}) }}",
    "{{ '%10000000000d' | format(1) }}",
    "{{ 'x' | center(10000000000) }}",
    "{{ 'x'.center(10000000000) }}",
    "{{ 'x'.ljust(10000000000) }}",
    "{{ '1'.zfill(10000000000) }}",
    "{{ '\t'.expandtabs(10000000000) }}",
    "{{ a | replace('x', a) }}",
    "{{ a.replace('x', a) }}",
    "{{ a.replace('', a) }}",
    "{{ a | replace('', b) | replace('', b) }}",
    "{{ list | join(a) }}",
    "{{ a.join(list) }}",
    "{{ a | indent(1000000000) }}",
    "{{ a | wordwrap(1) }}",
    "{{ a | list | batch(2, a) | list }}",
    "{{ range(10000000000) | list | length }}",
    "{{ lipsum(n=1000000) }}",
    "{{ cycler(1, 2).next() }}",
    "{{ 5 | round(-1000000000) }}",
    "{{ 5.5 | round(1000000000, 'ceil') }}",
    "{{ _timestamp.strftime(fmt) }}",
    "{{ _timestamp.strftime(wide) }}",
    "{{ _timestamp.strftime('%999999999Y') }}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% for i in a %}{% for j in a %}{% for k in a %}x{% endfor %}{% endfor %}{% endfor %}",
    "{% for i in list recursive %}{{ loop(list) }}{% endfor %}",
    "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
    "{% set x = 'xx' %}" + "{% set x = x ~ x %}" * 40 + "{{ x }}",
    "{% with x = a ~ a %}{{ x }}{% endwith %}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}x",
    "{% extends 'x' %}",
    "{% filter replace('x', 'xxxxxxxx') %}xxxxxxxx{% endfilter %}",
    "{% block x %}{{ self.x() }}{% endblock %}",
    "{{ self }}",
    "{{ " + "(" * 3000 + "1" + ")" * 900 + " }}",
    "{{ " + "(" * 1000 + "1" + ")" * 1000 + " }}",
    "{{ " + "not " * 1000 + "a }}",
    "{{ " + "-" * 2000 + "1 }}",
    "{{ " + "[" * 1000 + "]" * 1000 + " }}",
    "{{ a" + ".b" * 1500 + " }}",
    "{{ a" + " ~ a" * 900 + " }}",
    "{{ a" + " + a" * 30 + " }}",
    "{{ a" + " | upper" * 500 + " }}",
    "{{ " + "9" * 4000 + " }}",
    "{{ 1e999 }}",
    "{{ 0x" + "f" * 4000 + " }}",
    "{% if a %}" * 300 + "x" + "{% endif %}" * 300,
    "x" * 1_000_000,
    "{{ ''.__class__.__mro__ }}",
    "{{ a.__class__ }}",
    "{{ _timestamp.strftime.__self__ }}",
    "{{ (a ~ a ~ a) | length }}",
    "{{ 'x' | attr('upper') }}",
    "{{ ['x', 'y'] | map('upper') | join }}",
    "{{ a | pprint }}",
    "{{ a | urlize }}",
    "{{ a | striptags }}",
    "{{ a | wordcount }}",
    "{{ dict(a=1) }}",
    "{{ namespace(x=1) }}",
    "{{ a.split('x') | join(a) }}",
    "{{ a.encode().hex() }}",
    "{{ a.translate({}) }}",
    "{{ a | default(*list) }}",
    "{{ 1 << 100000000000 }}",
    "{{ a[::0] }}",
]  # fmt: skip


@pytest.mark.parametrize("template", NASTY, ids=lambda template: template[:60])
def test_no_template_hangs_or_takes_all_memory(template: str, jail: Jail) -> None:
    assert jail.run(template) != "named"


VALUES = st.sampled_from([
    "a", "b", "n", "list", "deep", "fmt", "wide", "deep.er.est", "_timestamp", "missing", "'x'", "10", "10000000000",
    "'%s'", "'{:>9999999999}'", "0", "-1", "[]", "[a, b]", "1.5", "none", "true",
])  # fmt: skip


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = ["+", "-", "*", "/", "//", "%", "**", "~", "and", "or", "<", "==", "in", "is sameas"]
    filters = [
        "lower",
        "center",
        "join",
        "replace",
        "format",
        "indent",
        "wordwrap",
        "batch",
        "slice",
        "round",
        "default",
        "int",
        "truncate",
        "string",
        "list",
        "xmlattr",
        "tojson",
        "first",
        "sum",
        "sort",
        "map",
        "length",
    ]
    methods = [
        "lower",
        "replace",
        "join",
        "center",
        "format",
        "zfill",
        "split",
        "strftime",
        "ljust",
        "expandtabs",
        "items",
    ]
    call = st.lists(inner, max_size=3).map(", ".join)
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(operators), inner),
        st.builds("({} | {}({}))".format, inner, st.sampled_from(filters), call),
        st.builds("({}).{}({})".format, inner, st.sampled_from(methods), call),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("({})[{}]".format, inner, inner),
        st.builds("range({})".format, inner),
    )


EXPRESSIONS = st.recursive(VALUES, combined, max_leaves=12)
TEMPLATES = st.recursive(
    st.builds("{{{{ {} }}}}".format, EXPRESSIONS),
    lambda inner: st.one_of(
        st.builds("{}_{}".format, inner, inner),
        st.builds("{{% if {} %}}{}{{% else %}}{}{{% endif %}}".format, EXPRESSIONS, inner, inner),
        st.builds("{{% for i in {} %}}{}{{% endfor %}}".format, EXPRESSIONS, inner),
        st.builds("{{% set a = {} %}}{}".format, EXPRESSIONS, inner),
    ),
    max_leaves=4,
)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(template=TEMPLATES)
def test_random_templates_are_refused_or_run_in_bounded_time(template: str, jail: Jail) -> None:
    jail.run(template)


def test_validate_refuses_a_template_that_could_grow_without_end() -> None:
    with pytest.raises(ValueError, match="a power has no place in a table template"):
        DuckdbConfig.model_validate({"path": "x.duckdb", "table": "{{ 'x' * (10**10) }}"})


@pytest.mark.parametrize(
    ("template", "named"),
    [
        ("{% for i in x %}{% endfor %}", "a loop"),
        ("{{ x | center(9) }}", "no filter 'center'"),
        ("{{ x.format(1) }}", "cannot call 'format'"),
        ("{{ range(3) }}", "cannot call 'range'"),
        ("{{ x is callable }}", "no test 'callable'"),
        ("{{ x(*y) }}", "cannot call 'x'"),
        ("{{ x | replace(*y) }}", r"without \* and \*\*"),
    ],
)
def test_a_refusal_names_what_has_no_place(template: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        EventTemplate(template)


@pytest.mark.parametrize(
    ("template", "event", "text"),
    [
        ("{{ a | default('none') }}", {}, "none"),
        ("{{ a | default('none', true) }}", {"a": ""}, "none"),
        ("{{ a | replace('-', '_') }}", {"a": "x-y-z"}, "x_y_z"),
        ("{{ a | replace('-', '_', 1) }}", {"a": "x-y-z"}, "x_y-z"),
        ("{{ a.replace('-', '_').upper() }}", {"a": "x-y"}, "X_Y"),
        ("{{ a | truncate(3, true, '') }}", {"a": "abcdefghijk"}, "abc"),
        ("{{ a[:2] }}{{ a[-1] }}", {"a": "abcd"}, "abd"),
        ("{{ a ~ '_' ~ b ~ c }}", {"a": 1, "b": "x"}, "1_x"),
        ("{{ a * 2 + 1 }}", {"a": 3}, "7"),
        ("{{ a % 16 }}", {"a": 35}, "3"),
        ("{{ 'even' if a is even else 'odd' }}", {"a": 3}, "odd"),
        ("{% if a in ['x', 'y'] %}known{% elif a %}other{% endif %}", {"a": "y"}, "known"),
        ("{{ a.b | join('_') }}", {"a": {"b": ["x", 1]}}, "x_1"),
        ("{{ a.split('.')[0] }}", {"a": "x.y"}, "x"),
        ("{{ '_'.join(a) }}", {"a": ["x", "y"]}, "x_y"),
        ("{{ a | string | length }}", {"a": 123}, "3"),
        ("{{ (a | string).zfill(3) }}", {"a": 7}, "007"),
        ("{{ a | round(1) }}", {"a": 1.26}, "1.3"),
        ("{{ a.lower }}", {"a": {"lower": "a field"}}, "a field"),
        ("{# nothing #}{% raw %}{{ x }}{% endraw %}", {}, "{{ x }}"),
    ],
)  # fmt: skip
def test_what_templates_are_for_goes_on(template: str, event: dict[str, object], text: str) -> None:
    assert EventTemplate(template).render(event) == text


@pytest.mark.parametrize(
    ("template", "event", "said"),
    [
        ("{{ a | lower }}", {"a": "x" * (MAX_TEXT + 1)}, "more than 65536 characters"),
        ("{{ a | replace('x', 'yy') }}", {"a": "x" * 40_000}, "more than 65536 characters"),
        ("{{ a }}{{ a }}", {"a": "x" * 40_000}, "more than 65536 characters"),
        ("{{ a ~ a }}", {"a": "x" * 40_000}, "more than 65536 characters"),
        ("{{ a | lower }}", {"a": {"b": "x" * 2**20}}, "over 1048576 bytes"),
        ("{{ _timestamp.strftime(a) }}", {"_timestamp": "2024-05-01T10:00:00Z", "a": "%Y" * 999}, "at most 256"),
        ("{{ _timestamp.strftime(a) }}", {"_timestamp": "2024-05-01T10:00:00Z", "a": "%99999Y"}, "without widths"),
    ],
)  # fmt: skip
def test_an_event_over_a_limit_fails_alone_and_says_why(template: str, event: object, said: str) -> None:
    names = TableChooser(template, 63)
    good = {"a": "x", "_timestamp": "2024-05-01T10:00:00Z"}
    choices = names.choose(pa.array([json.dumps(good).encode(), json.dumps(event).encode()], pa.binary()))
    by_row = {int(row): choice for choice in choices for row in np.asarray(choice.rows)}
    assert not by_row[0].problem
    assert said in by_row[1].problem
    assert len(by_row[1].problem) < 400


def test_values_of_any_size_are_not_remembered_for_ever() -> None:
    names = TableChooser("{{ a | truncate(9, true, '') }}", 63)
    for number in range(50):
        names.choose(pa.array([json.dumps({"a": f"{number}" + "x" * 50_000}).encode()], pa.binary()))
    assert sum(len(value or b"") for key in names._remembered for value in key) < 100_000
