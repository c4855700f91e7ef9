"""No secret of a config is shown. The options that hold one are found in the config classes: new ones are covered."""

from __future__ import annotations

import base64
import json
import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from penstock.config.loading import load
from penstock.config.pipeline_config import EngineConfig, LedgerConfig
from penstock.config.problems import ConfigError, Position
from penstock.config.secrets import is_secret_name, secrets_in_address, secrets_in_options
from penstock.errors import PenstockError
from penstock.redaction import MASK, MIN_LENGTH, Redactor, add_secrets, forget_secrets, is_weak, redacted
from penstock.registry import Kind, components

PLANTED = "h0p!scotch-42"
IN_A_URL = quote(PLANTED, safe="")
ADDRESSES = ("url", "dsn")


@dataclass(frozen=True)
class SecretField:
    """An option that holds a secret, and the class that it is an option of."""

    owner: type[BaseModel]
    name: str

    def __str__(self) -> str:
        return f"{self.owner.__name__}.{self.name}"


def classes() -> Iterator[type[BaseModel]]:
    """Every config class there is: of all components, and of the pipeline around them."""
    waiting: list[type[BaseModel]] = [LedgerConfig, EngineConfig]
    waiting += [card.config_class() for kind in Kind for card in components(kind).values()]
    seen: set[type[BaseModel]] = set()
    while waiting:
        cls = waiting.pop()
        if cls in seen:
            continue
        seen.add(cls)
        yield cls
        for field in cls.model_fields.values():
            waiting += [
                part for part in parts(field.annotation) if isinstance(part, type) and issubclass(part, BaseModel)
            ]


def parts(annotation: object) -> Iterator[object]:
    """A type and the types that it is made of."""
    yield annotation
    for inner in typing.get_args(annotation):
        yield from parts(inner)


SECRET_FIELDS = [
    SecretField(cls, name)
    for cls in classes()
    for name, field in cls.model_fields.items()
    if SecretStr in parts(field.annotation)
]


def test_every_option_that_is_called_like_a_secret_is_one() -> None:
    found = {str(field) for field in SECRET_FIELDS}
    called_so = {
        f"{cls.__name__}.{name}"
        for cls in classes()
        for name in cls.model_fields
        if is_secret_name(name) or name in ADDRESSES
    }
    paths = {"BigqueryConfig.credentials"}
    # These refuse what is a secret; it has to be given as a header or a token.
    bare_addresses = {"DatasetConfig.url", "HttpConfig.url"}
    assert called_so - found - paths - bare_addresses == set()
    assert len(found) >= 8


@pytest.mark.parametrize("field", SECRET_FIELDS, ids=str)
def test_every_secret_of_every_class_is_known_and_not_shown(field: SecretField) -> None:
    value = f"postgresql://me:{IN_A_URL}@db/x?sslpassword={IN_A_URL}" if field.name in ADDRESSES else PLANTED
    options = field.owner.model_construct(**{field.name: SecretStr(value)})
    assert PLANTED in set(secrets_in_options(options))
    assert PLANTED not in repr(options)
    assert IN_A_URL not in repr(options)


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.azure.account.key.shop.dfs.core.windows.net",
        "spark.ssl.keyPassword",
        "spark.authenticate.secret",
        "spark.hadoop.javax.jdo.option.ConnectionPassword",
        "spark.kafka.clusters.x.sasl.token",
    ],
)
def test_spark_settings_that_are_called_like_a_secret_are_one(name: str) -> None:
    assert list(secrets_in_options(EngineConfig(spark={name: PLANTED}))) == [PLANTED]


def test_secrets_inside_of_other_settings_are_found() -> None:
    options = EngineConfig(spark={"spark.driver.extraJavaOptions": f"-Xss4m -Ddb.password={PLANTED} -Dx=1"})
    assert set(secrets_in_options(options)) == {PLANTED}


@pytest.mark.parametrize(
    ("address", "secrets"),
    [
        (f"postgresql://me:{IN_A_URL}@db/x", {PLANTED}),
        (f"postgresql://me@db/x?password={IN_A_URL}&sslmode=require", {PLANTED}),
        (f"postgresql://me@db/x?sslpassword={IN_A_URL}", {PLANTED}),
        (f"host=db user=me password='{PLANTED}'", {PLANTED}),
        (f"host=db password={PLANTED}", {PLANTED}),
        (f"clickhouse://me:{IN_A_URL}@ch:8123/?access_token=second-one", {PLANTED, "second-one"}),
        ("postgresql://me@db/x?sslkey=/etc/key&passfile=/etc/pass", set()),
        ("postgresql://db/x", set()),
    ],
)
def test_of_an_address_only_what_is_secret_counts(address: str, secrets: set[str]) -> None:
    found = set(secrets_in_address(address))
    assert secrets <= found
    assert found <= secrets | {quote(secret, safe="") for secret in secrets} | {f"'{secret}'" for secret in secrets}


SPELLINGS = {
    "as it is": lambda s: s,
    "in a URL": lambda s: f"postgresql://me:{quote(s, safe='')}@db/x",
    "in a URL, with small digits": lambda s: re.sub("%..", lambda escape: escape[0].lower(), quote(s, safe="")),
    "in a query": lambda s: f"?password={quote_plus(s)}&x=1",
    "in JSON": json.dumps,
    "in Python": repr,
    "in SQL": lambda s: "PASSWORD '" + s.replace("'", "''") + "'",
    "as a user of Basic": lambda s: base64.b64encode(f"{s}:".encode()).decode(),
    "as a password of Basic": lambda s: base64.b64encode(f"someone:{s}".encode()).decode(),
    "in the middle of base64": lambda s: base64.b64encode(f"ab{s}xyz".encode()).decode(),
}  # fmt: skip


@given(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), min_size=MIN_LENGTH, max_size=40))
def test_a_secret_is_taken_out_in_every_spelling(secret: str) -> None:
    if is_weak(secret) or secret in MASK * 99 or "%" in secret or secret in "before after":
        return
    redactor = Redactor([secret])
    for name, spelled in SPELLINGS.items():
        shown = redactor.redacted(f"before {spelled(secret)} after")
        assert MASK in shown, name
        assert shown.startswith("before "), name
        assert shown.endswith(" after"), name
        if name in ("as it is", "in JSON"):
            assert secret not in shown.replace(MASK, "")


@pytest.mark.parametrize("secret", ["demo", "a", "abc", "password", "postgres"])
def test_a_short_or_common_secret_leaves_lines_readable(secret: str) -> None:
    redactor = Redactor([secret])
    line = "postgres: a demo of abc: the password was refused at data/a.log"
    assert redactor.redacted(line) == line
    assert redactor.redacted(f"postgresql://me:{secret}@db/x") == "postgresql://me:***@db/x"
    assert redactor.redacted(f"host=db password={secret} x") == "host=db password=*** x"
    assert redactor.redacted(json.dumps({"client_secret": secret})) == '{"client_secret": "***"}'


def test_an_error_shows_no_secret_whoever_made_its_text() -> None:
    add_secrets([PLANTED])
    error = PenstockError("PEN-X-001", f"could not connect to postgresql://me:{IN_A_URL}@db", f"Try {PLANTED}.")
    assert PLANTED not in str(error) + repr(error) + error.what + error.fix
    assert IN_A_URL not in str(error)
    forget_secrets()
    assert redacted(PLANTED) == PLANTED


URLS = {
    "a destination": ("routes.out.to.url", "to: {{type: postgres, url: {url}}}", "postgresql"),
    "Redshift": ("routes.out.to.url", "to: {{type: redshift, url: {url}, staging: 's3://b/p'}}", "postgresql"),
    "ClickHouse": ("routes.out.to.url", "to: {{type: clickhouse, url: {url}}}", "clickhouse"),
    "the ledger": ("ledger.url", "to: {{type: 'null'}}\nledger: {{url: {url}}}", "postgresql"),
    "a source": ("sources.web.url", "to: {{type: 'null'}}", "postgresql"),
}


@pytest.mark.parametrize("place", URLS)
@pytest.mark.parametrize(
    "password",
    ["h0p@sc0tch", "h0p/sc0tch", "h0p?sc0tch", "h0p#sc0tch", "h0p%sc0tch", "12/sc0tch", "12?a=sc0tch", "a@b@sc0tch"],
)
def test_an_unescaped_password_is_refused_with_its_place_and_the_fix(place: str, password: str, tmp_path: Path) -> None:
    key, rest, scheme = URLS[place]
    url = json.dumps(f"{scheme}://me:{password}@db:5432/x")
    source = f"{{type: postgres, url: {url}, tables: public.x}}" if place == "a source" else "{type: file, path: x}"
    file = tmp_path / "pipeline.yaml"
    text = f"name: shop\nsources:\n  web: {source}\nroutes:\n  out:\n    from: web\n    {rest.format(url=url)}\n"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    (problem,) = caught.value.problems
    line = next(number for number, content in enumerate(text.splitlines(), 1) if password in content)
    assert problem.position is not None
    assert problem.position.line == line
    assert problem.key.startswith(key)
    assert "percent-encoded" in str(problem)
    assert "%40" in str(problem)
    for part in ("sc0tch", "h0p"):
        assert part not in str(caught.value)


WITHOUT_A_KEY = [
    "sources:\n  db: {{type: postgres, postgresql://u:{secret}@h/db, tables: [a]}}\n",
    "sources:\n  db: {{type: postgres, 'postgresql://u:{secret}@h/db', tables: [a]}}\n",
    "sources:\n  db:\n    type: postgres\n    ? postgresql://u:{secret}@h/db\n    tables: [a]\n",
    "sources:\n  db: {{type: postgres, url postgresql://u:{secret}@h/db, tables: [a]}}\n",
    "sources:\n  db: {{type: postgres, url=postgresql://u:{secret}@h/db, tables: [a]}}\n",
    "sources:\n  web: {{type: http, tokens: [{{id: a, client_secret={secret}}}]}}\n",
    "sources:\n  web: {{type: http, tokens: [{{id: a, client_secret {secret}}}]}}\n",
    "sources:\n  web: {{type: http, tokens: [{{id: a, 'client_secret;{secret}': 1}}]}}\n",
    "sources:\n  web: {{type: http, tokens: [{{id: a, {secret}}}]}}\n",
    "sources:\n  web: {{type: http, tokens: [{{id: a, x{secret}-0123456789012345678901234567890123456789: 1}}]}}\n",
    "sources:\n  web: {{type: http, tokens: [{{id: a, 'client_secret={secret}': {{x: 1}}}}]}}\n",
    "sources:\n  web: {{type: http, tokens: [{{id: a, 'password={secret}': 1, 'password={secret}': 2}}]}}\n",
    "sources:\n  postgresql://u:{secret}@h/db: {{type: postgres}}\n",
    "routes:\n  password={secret}: {{from: 7}}\n",
    "routes:\n  out: {{from: web, steps: [{{api_key={secret}: 1}}], to: {{type: stdout}}}}\n",
    "routes:\n  out: {{from: web, steps: [{{api key {secret}: 1}}], to: {{type: stdout}}}}\n",
    "routes: {{client_secret {secret}}}\n",
    "routes:\n  out: {{from: web, to: {{type: ga4, api_secret={secret}}}}}\n",
    "{secret}\n",
    "ledger: {{postgresql://u:{secret}@h/db}}\n",
]


@pytest.mark.parametrize("text", WITHOUT_A_KEY)
@pytest.mark.parametrize("secret", ["h0pscotch42", "pw", "hunter2hunter2", "83650921746"])
def test_a_secret_that_stands_where_a_key_should_is_not_shown(text: str, secret: str, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("name: shop\n" + text.replace("{{", "{").replace("}}", "}").replace("{secret}", secret))
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert secret not in str(caught.value).replace(str(tmp_path), "")
    assert f"{file}:" in str(caught.value)


def test_where_a_key_is_missing_the_place_and_the_keys_are_said(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"name: shop\nsources:\n  db: {{type: postgres, postgresql://u:{PLANTED}@h/db, tables: [a]}}\n")
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    problem = next(each for each in caught.value.problems if "is no key" in each.what)
    assert (problem.key, problem.position) == ("sources.db", Position(3, 24))
    assert "Write `key: value`" in problem.fix
    assert " url" in problem.fix


BROKEN = [
    "client_secret: *{secret}",
    "client_secret: @{secret}",
    "client_secret: '{secret}",
    "client_secret: {{a: {secret}}}",
    "client_secret: [{secret}]",
    "client_secret: !{secret} x",
    "client_secrett: {secret}",
    "client_secret: '{secret}', origins: ['https://x/{secret}']",
    "client_secret: '{secret}', origin: '{secret}'",
    "client_secret: '{secret}', id: 7",
    "client_secret: '{secret}', origins: 'https://x/{secret}'",
    "server_secret: '{secret}', client_secret: '{secret}'",
]


@pytest.mark.parametrize("options", BROKEN)
def test_a_config_that_is_wrong_is_not_quoted_with_its_secrets(options: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    tokens = options.replace("{secret}", "h0pscotch42").replace("{{", "{").replace("}}", "}")
    file.write_text(f"name: shop\nsources:\n  web:\n    type: http\n    tokens:\n    - {{id: site, {tokens}}}\n")
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert "h0pscotch42" not in str(caught.value)


def test_a_secret_of_the_environment_is_not_quoted_beside_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "name: shop\nsources: {web: {type: http, listen: '${DB_PASSWORD}', tokens: [{id: a, client_secret: b}]}}\n"
        "routes: {out: {from: web, to: {type: duckdb, path: x, load: '${DB_PASSWORD}', table: '{{ ${DB_PASSWORD} '}}}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(file, {"DB_PASSWORD": PLANTED})
    assert len(caught.value.problems) >= 2
    assert PLANTED not in str(caught.value)
