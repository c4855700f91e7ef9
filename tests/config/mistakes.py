"""The mistakes that people make in a pipeline. ``▲`` in a text stands where the report must point."""

from __future__ import annotations

from dataclasses import dataclass

SOURCES = "sources: {web: {type: http, tokens: [{id: site, client_secret: demo}]}}\n"
START = "name: shop\n" + SOURCES
GOOD = START + "routes: {out: {from: [web], to: {type: stdout}}}\n"


def with_route(options: str, to: str = "{type: stdout}") -> str:
    return START + f"routes:\n  out:\n    from: [web]\n    to: {to}\n" + options


@dataclass(frozen=True)
class Mistake:
    title: str
    text: str
    key: str
    what: str
    fix: str


MISTAKES = [
    # What YAML itself does not take.
    Mistake("tab", "name: shop\nsources:\n▲\tweb: {}\n", "", "not valid YAML", "Indent with spaces"),
    Mistake("indentation", "name: shop\n  sources▲: {}\n", "", "mapping values", "indented"),
    Mistake("unclosed quote", 'name: ▲"shop\nsources: {}\n', "", "end of stream", "Close the quotes."),
    Mistake(
        "unclosed bracket", "name: shop\nsources: {web: {type: http}\n▲", "", "expected ',' or '}'", "Close the mapping"
    ),
    Mistake("colon in a value", "name: shop▲: the one\n", "", "mapping values", "Quote a value"),
    Mistake("at sign", "name: ▲@shop\n", "", "not valid YAML", "A value that begins with @ needs quotes."),
    Mistake("unquoted variable in braces", "name: shop\nlog: {type: $▲{KIND}}\n", "", "not valid YAML", '"${NAME}"'),
    Mistake("unknown alias", "name: ▲*shop\n", "", "undefined alias", "needs quotes"),
    Mistake("second document", GOOD + "▲---\nname: other\n", "", "another document", "remove the second '---'"),
    Mistake("unknown tag", "name: ▲!env SHOP\n" + SOURCES, "name", "the tag !env", "Remove it."),
    Mistake("empty", "▲", "", "the file is empty", "penstock init"),
    Mistake("only comments", "▲# nothing yet\n", "", "the file is empty", "penstock init"),
    Mistake("list on top", "▲- name: shop\n", "", "a pipeline is a mapping", "without a dash"),
    Mistake("control character", "name: sh▲\x07op\n", "", "does not allow", "Remove it"),
    Mistake("circular alias", "name: shop\nsources: ▲&a {web: *a}\n", "", "64 levels", "aliases"),
    # Keys.
    Mistake("key twice", "name: shop\n▲name: shop\n" + SOURCES, "name", "given twice, first in line 1", "Keep one"),
    Mistake(
        "number as a key",
        START + "routes: {▲1: {from: [web], to: {type: stdout}}}\n",
        "routes",
        "key 1 is not text",
        "'1'",
    ),
    Mistake(
        "unquoted template",
        with_route("", "{type: file, path: ./out, format: {▲{ x }}}"),
        "routes.out.to.format",
        "where a key should",
        "needs quotes",
    ),
    Mistake(
        "misspelt key on top", "name: shop\n▲source: {}\n", "source", "unknown key 'source'", "Did you mean 'sources'?"
    ),
    Mistake(
        "misspelt key of a route",
        with_route("    ▲namspace: x\n"),
        "routes.out.namspace",
        "unknown key",
        "Did you mean 'namespace'?",
    ),
    Mistake(
        "misspelt key of a destination",
        with_route("", "{type: file, ▲pth: ./out}"),
        "routes.out.to.pth",
        "unknown key 'pth'",
        "Did you mean 'path'?",
    ),
    Mistake(
        "misspelt key below a lifted option",
        with_route("", "{type: file, mode: batch, ▲pth: ./out}"),
        "routes.out.to.pth",
        "unknown key 'pth'",
        "'path'?",
    ),
    Mistake(
        "misspelt key deep down",
        GOOD + "log: {retention: {▲maxage: 1d}}\n",
        "log.retention.maxage",
        "unknown key",
        "Did you mean 'max_age'?",
    ),
    Mistake(
        "misspelt key of a union's member",
        GOOD + "log: {fsync: {▲intervl: 1s}}\n",
        "log.fsync.intervl",
        "unknown key",
        "Did you mean 'interval'?",
    ),
    Mistake(
        "strange key", GOOD + "▲zebra: 1\n", "zebra", "unknown key 'zebra'", "Known keys: archive, data_dir, engine"
    ),
    Mistake("missing key on top", "▲" + SOURCES, "name", "missing key 'name'", "Name of the pipeline."),
    Mistake(
        "missing key of a route",
        START + "routes:\n  out:\n    ▲from: [web]\n",
        "routes.out.to",
        "missing key 'to'",
        "Add it. Where they go.",
    ),
    Mistake(
        "missing key of a destination",
        with_route("", "▲{type: file}"),
        "routes.out.to.path",
        "missing key 'path'",
        "Add it. Folder",
    ),
    Mistake(
        "missing type",
        with_route("", "▲{path: ./out}"),
        "routes.out.to.type",
        "missing key 'type'",
        "one of: archive, ",
    ),
    # Values.
    Mistake("name in capitals", "name: ▲Shop\n" + SOURCES, "name", "'Shop' is not a name", "beginning with a letter"),
    Mistake(
        "bad name of a route",
        START + "routes:\n  ▲out route: {from: [web], to: {type: stdout}}\n",
        "routes.out route",
        "is not a name",
        "use up to 63",
    ),
    Mistake("mode in place of a mask", 'umask: ▲"700"\n' + GOOD, "umask", "'700' is not a mask", "the first one 0"),
    Mistake("number for text", "name: ▲5\n" + SOURCES, "name", "expected text, found a number", "Put it in quotes."),
    Mistake(
        "text for a number",
        with_route("    max_records: ▲many\n"),
        "routes.out.max_records",
        "expected a whole number, found 'many'",
        "",
    ),
    Mistake(
        "fraction for a whole number",
        with_route("    max_records: ▲1.5\n"),
        "routes.out.max_records",
        "expected a whole number, found the number 1.5",
        "",
    ),
    Mistake("zero", with_route("    max_records: ▲0\n"), "routes.out.max_records", "must be greater than 0", ""),
    Mistake(
        "no room for what waits",
        with_route("    steps: [{gather: {key: k, until: done, at_most: 1m}}]\n    max_hold_bytes: ▲0\n"),
        "routes.out.max_hold_bytes",
        "must be greater than 0",
        "",
    ),
    Mistake(
        "a limit for what waits where nothing can wait",
        with_route("    steps: [{where: 'n > 1'}]\n    ▲max_hold_bytes: 1GiB\n"),
        "routes.out.max_hold_bytes",
        "this route has no such step",
        "Leave `max_hold_bytes` out.",
    ),
    Mistake(
        "no value",
        START + "▲routes:\n",
        "routes",
        "expected a mapping, found nothing",
        "Give it a value, or remove the key.",
    ),
    Mistake(
        "text for a mapping",
        START + "routes: {out: ▲web}\n",
        "routes.out",
        "expected a mapping, found text",
        "indented",
    ),
    Mistake(
        "mapping for a list",
        START + "routes: {out: {from: ▲{web: 1}, to: {type: stdout}}}\n",
        "routes.out.from",
        "expected a list, found a mapping",
        "",
    ),
    Mistake(
        "list of a wrong kind",
        START + "routes: {out: {from: [▲1], to: {type: stdout}}}\n",
        "routes.out.from[0]",
        "expected text",
        "quotes",
    ),
    Mistake("no source at all", "name: shop\nsources: ▲{}\n", "sources", "needs at least 1, and has 0", ""),
    Mistake(
        "from nowhere",
        START + "routes: {out: {from: ▲[], to: {type: stdout}}}\n",
        "routes.out.from",
        "needs at least 1",
        "",
    ),
    Mistake(
        "misspelt choice",
        with_route("    mode: ▲strem\n"),
        "routes.out.mode",
        "expected one of stream, batch, found 'strem'",
        "Did you mean 'stream'?",
    ),
    Mistake(
        "misspelt choice inside to",
        with_route("", "{type: stdout, mode: ▲strem}"),
        "routes.out.to.mode",
        "expected one of stream, batch",
        "Did you mean 'stream'?",
    ),
    Mistake(
        "choice of a wrong kind",
        GOOD + "log: {fsync: ▲5}\n",
        "log.fsync",
        "expected one of always, never or a mapping, found the number 5",
        "",
    ),
    Mistake(
        "mode twice",
        with_route("    mode: batch\n", "{type: stdout, ▲mode: batch}"),
        "routes.out.to.mode",
        "stands in the route and in its destination",
        "Keep one",
    ),
    Mistake(
        "unknown unit",
        with_route("    every: ▲5 fortnights\n"),
        "routes.out.every",
        "unknown unit",
        "250ms, 30s, 5m, 1h or 7d",
    ),
    Mistake(
        "not a duration", with_route("    every: ▲soon\n"), "routes.out.every", "'soon' is not a duration", "250ms"
    ),
    Mistake(
        "not a size",
        with_route("    max_bytes: ▲huge\n"),
        "routes.out.max_bytes",
        "'huge' is not a size",
        "10MB or 1GiB",
    ),
    Mistake(
        "bad regular expression",
        with_route('    namespace: ▲"/ord(ers/"\n'),
        "routes.out.namespace",
        "not a regular expression",
        "unterminated",
    ),
    Mistake(
        "flags of a regular expression",
        with_route('    namespace: ▲"/^ORD/i"\n'),
        "routes.out.namespace",
        "has flags after its last slash",
        "Write '/(?i)^ORD/'",
    ),
    Mistake(
        "flags of a step's regular expression",
        with_route("    steps: [{omit: {fields: [a], namespace: ▲/^ORD/i}}]\n"),
        "routes.out.steps[0].omit.namespace",
        "has flags after its last slash",
        "Write '/(?i)^ORD/'",
    ),
    Mistake(
        "not a ledger", GOOD + "ledger: {url: ▲mysql://u:pw@db/x}\n", "ledger.url", "not a database", "postgresql://"
    ),
    # Names of things.
    Mistake(
        "unknown source",
        START + "routes: {out: {from: [▲wbe], to: {type: stdout}}}\n",
        "routes.out.from[0]",
        "no source called 'wbe'",
        "Did you mean 'web'?",
    ),
    Mistake(
        "unknown source, not in a list",
        START + "routes: {out: {from: ▲shop, to: {type: stdout}}}\n",
        "routes.out.from",
        "no source called 'shop'",
        "Known sources: web.",
    ),
    Mistake(
        "unknown type of source",
        "name: shop\nsources: {web: {type: ▲htp}}\n",
        "sources.web.type",
        "no source of type 'htp'",
        "Did you mean 'http'?",
    ),
    Mistake(
        "unknown type of destination",
        with_route("", "{type: ▲oracle}"),
        "routes.out.to.type",
        "no destination of type 'oracle'",
        "Known destinations: archive, ",
    ),
    Mistake(
        "destination as text",
        with_route("", "▲stdout"),
        "routes.out.to",
        "expected a mapping with a 'type'",
        "Write, for example: {type: archive}.",
    ),
    # Steps.
    Mistake(
        "unknown step",
        with_route('    steps:\n      - ▲wher: "a > 1"\n'),
        "routes.out.steps[0].wher",
        "no step called 'wher'",
        "Did you mean 'where'?",
    ),
    Mistake(
        "steps in one",
        with_route("    steps:\n      - ▲omit: [a]\n        pick: [b]\n"),
        "routes.out.steps[0]",
        "a step is one key",
        "its own '- '",
    ),
    Mistake(
        "options beside the step",
        with_route("    steps:\n      - ▲omit:\n        fields: [a]\n"),
        "routes.out.steps[0]",
        "a step is one key",
        "Indent the options further than 'omit:'",
    ),
    Mistake(
        "step as text",
        with_route("    steps: [▲omit]\n"),
        "routes.out.steps[0]",
        "a step is one key",
        "Write: - omit: {}.",
    ),
    Mistake(
        "steps as a mapping",
        with_route("    steps: ▲{omit: [a]}\n"),
        "routes.out.steps",
        "expected a list, found a mapping",
        "",
    ),
    Mistake(
        "step without its option",
        with_route("    steps:\n      - ▲omit:\n"),
        "routes.out.steps[0].omit.fields",
        "missing key 'fields'",
        "Add it.",
    ),
    Mistake(
        "bare value of a wrong kind",
        with_route("    steps:\n      - omit: [▲7]\n"),
        "routes.out.steps[0].omit[0]",
        "expected text, found a number",
        "quotes",
    ),
    Mistake(
        "misspelt option of a step",
        with_route("    steps:\n      - omit: {fields: [a], ▲namespce: x}\n"),
        "routes.out.steps[0].omit.namespce",
        "unknown key",
        "Did you mean 'namespace'?",
    ),
    # Tokens and the archive.
    Mistake(
        "token that no source has",
        with_route("    only_keys: [site, ▲sites]\n"),
        "routes.out.only_keys[1]",
        "no source of this route has a token with the id 'sites'",
        "Did you mean 'site'?",
    ),
    Mistake(
        "token that no source has, in a destination",
        with_route("", "{type: stdout, only_keys: [▲zebra]}"),
        "routes.out.to.only_keys[0]",
        "no source of this route has a token with the id 'zebra'",
        "Known tokens: site.",
    ),
    Mistake(
        "tokens twice",
        with_route("    only_keys: [site]\n", "{type: stdout, ▲only_keys: [site]}"),
        "routes.out.to.only_keys",
        "'only_keys' stands in the route and in its destination",
        "Keep one",
    ),
    Mistake(
        "token that is a number",
        with_route("    only_keys: [▲7]\n"),
        "routes.out.only_keys[0]",
        "expected text, found a number",
        "quotes",
    ),
    Mistake(
        "archive as text",
        GOOD + "archive: ▲please\n",
        "archive",
        "expected true, false or a mapping",
        "Write: archive: true.",
    ),
    Mistake(
        "misspelt option of the archive",
        GOOD + "archive: {▲evry: 5m}\n",
        "archive.evry",
        "unknown key 'evry'",
        "Did you mean 'every'?",
    ),
    Mistake(
        "archive without time",
        GOOD + "archive: {every: ▲0s}\n",
        "archive.every",
        "must be greater than 0",
        "",
    ),
    Mistake(
        "route of the archive's name",
        START + "archive: true\nroutes: {▲archive: {from: [web], to: {type: stdout}}}\n",
        "routes.archive",
        "'archive' is the name of the route that `archive` adds",
        "another name",
    ),
    Mistake(
        "a type with a slip",
        with_route(
            "    steps: [{map: {fields: [{src: /price, action: cast, type: ▲bigintt}]}}]", "{type: duckdb, path: ./x}"
        ),
        "routes.out.steps[0].map.fields[0].type",
        "'bigintt' is no type of DuckDB",
        "Did you mean 'bigint'?",
    ),
    Mistake(
        "a type with more digits after the point than it has",
        with_route(
            "    steps: [{map: {fields: [{src: /a, dst: /b}, {src: /price, action: cast, type: ▲'numeric(2,12)'}]}}]",
            "{type: postgres, url: 'postgresql://db/x'}",
        ),
        "routes.out.steps[0].map.fields[1].type",
        "'numeric(2,12)' is no type of PostgreSQL: scale 12 is larger than precision 2",
        "",
    ),
    Mistake(
        "a master that Spark does not know",
        GOOD + "engine: {master: ▲'locall[2]'}\n",
        "engine.master",
        "'locall[2]' is no master of Spark; write local[*], local[2] or spark://host:7077",
        "",
    ),
    Mistake(
        "a master that is not closed",
        GOOD + "engine: {master: ▲'local[2'}\n",
        "engine.master",
        "'local[2' is no master of Spark; write local[*], local[2] or spark://host:7077",
        "",
    ),
    Mistake(
        "memory that is none",
        GOOD + "engine: {spark: ▲{spark.driver.memory: 4gg}}\n",
        "engine.spark",
        "spark.driver.memory is an amount of memory such as 512m or 4g",
        "",
    ),
    Mistake(
        "too little memory",
        GOOD + "engine: {spark: ▲{spark.driver.memory: 1m}}\n",
        "engine.spark",
        "spark.driver.memory is at least 512m: Spark does not start with less",
        "",
    ),
    Mistake(
        "a number that is none",
        GOOD + "engine: {spark: ▲{spark.sql.shuffle.partitions: abc}}\n",
        "engine.spark",
        "spark.sql.shuffle.partitions is a whole number from 1 on",
        "",
    ),
    Mistake(
        "a truth that is none",
        GOOD + "engine: {spark: ▲{spark.ui.enabled: maybe}}\n",
        "engine.spark",
        "spark.ui.enabled is true or false",
        "",
    ),
    Mistake(
        "a setting that is not Spark's",
        GOOD + "engine: {spark: ▲{driver.memory: 4g}}\n",
        "engine.spark",
        "'driver.memory' is no setting of Spark: they begin with spark.",
        "",
    ),
    Mistake(
        "a route of the name of another one's archive",
        START + "routes:\n  a: {from: web, archive: true, to: {type: stdout}}\n"
        "  ▲a-archive: {from: web, to: {type: stdout}}\n",
        "routes.a-archive",
        "'a-archive' is the name of the route that `archive` adds",
        "another name",
    ),
    Mistake(
        "a key under its older name too",
        with_route("", "{type: postgres, url: 'postgresql://db/x', ▲dsn: 'postgresql://db/x'}"),
        "routes.out.to.dsn",
        "'dsn' is an older name of 'url', which is there too",
        "Keep one of them.",
    ),
    Mistake(
        "no address",
        with_route("", "▲{type: postgres}"),
        "routes.out.to.url",
        "missing key 'url'",
        "Add it. Where the database is",
    ),
    # Variables.
    Mistake(
        "variable that is not set",
        "name: ▲${SHOP}\n" + SOURCES,
        "name",
        "the environment variable SHOP is not set",
        "export SHOP=..., or give a default: ${SHOP:-default}",
    ),
    Mistake(
        "variable that is none",
        "name: ▲${1SHOP}\n" + SOURCES,
        "name",
        "does not begin a variable",
        "$${ for a plain ${",
    ),
    Mistake("variable left open", "name: ▲${SHOP\n" + SOURCES, "name", "does not begin a variable", "${NAME:-default}"),
    Mistake(
        "variable of a wrong kind",
        with_route("    max_records: ▲${WORD}\n"),
        "routes.out.max_records",
        "found what '${WORD}' stands for",
        "",
    ),
    Mistake(
        "a body that no log takes",
        GOOD.replace("tokens:", "limits: {body_bytes: ▲100MB}, tokens:"),
        "sources.web.limits.body_bytes",
        "more than the 50331648 bytes that the log takes of one request",
        "make it 48MiB or less",
    ),
]
