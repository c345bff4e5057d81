"""Texts and names reach Spark as they are: nothing in them is a variable, an escape or the end of one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import expected, opened, result_rows, settle
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headwater.algebra.expressions import Literal
from headwater.algebra.types import STRING
from headwater.cql import parse_query
from headwater.cql.writer import expr_text, name_text
from headwater.runtime.spark.session import NO_CODEGEN, derive_session
from headwater.runtime.spark.sql import quote_identifier, quote_text

pytestmark = pytest.mark.spark

QUIET = settings(
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)

VARIABLES = [
    "${env:HOME}",
    "${system:user.dir}",
    "${hiveconf:spark.app.name}",
    "${hivevar:x}",
    "${sparkconf:spark.app.name}",
    "${spark:spark.app.name}",
    "${spark.app.name}",
    "${${env:HOME}}",
]
ODD = [
    "'",
    '"',
    "\\",
    "\\'",
    "\\\\n",
    "it''s",
    "a\nb\r\nc\td",
    "-- no comment",
    "/* nor this */",
    "; DROP",
    "\u2028 \u0085",
    "\U0001f600 \ufeff",
    "\x01\x1a\x7f",
    ":name ? {x}",
    "r'x' \\u0041 \\101 \\%",
    "`a`.`b`",
]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PIECES = st.sampled_from([*VARIABLES, *ODD]) | TEXT
TEXTS = st.lists(st.lists(PIECES, min_size=1, max_size=3).map("".join), min_size=1, max_size=20)


@given(TEXTS)
@settings(QUIET, max_examples=20)
def test_a_literal_is_what_was_written(spark: Any, texts: list[str]) -> None:
    for session in (spark, derive_session(spark, *NO_CODEGEN)):
        items = ", ".join(f"{quote_text(text)} AS c{n}" for n, text in enumerate(texts))
        assert list(session.sql(f"SELECT {items}").first()) == texts


@given(TEXTS)
@settings(QUIET, max_examples=10)
def test_a_name_is_what_was_written(spark: Any, texts: list[str]) -> None:
    names = list(dict.fromkeys(texts))
    items = ", ".join(f"{n} AS {quote_identifier(name)}" for n, name in enumerate(names))
    assert spark.sql(f"SELECT {items}").columns == names


def test_queries_see_texts_as_the_reference_does(spark: Any, tmp_path: Path) -> None:
    """In what is selected, in conditions, patterns and names; rows that hold what a variable stands for
    are no match for it."""
    stands_for = [os.environ.get("HOME", ""), str(Path.cwd()), "headwater tests"]
    texts = [*VARIABLES, *ODD]
    rows = [(text, at) for at, text in enumerate([*texts, *stands_for], 1)]
    literals = [expr_text(Literal(text, STRING)) for text in texts]
    names = [name_text(text) for text in texts if text.isprintable()]
    asked = {
        "selected": f"SELECT {', '.join(f'{v} AS c{n}' for n, v in enumerate(literals))} FROM s [NOW]",
        "among": f"SELECT a FROM s [NOW] WHERE a IN ({', '.join(literals)})",
        **{f"equal{n}": f"SELECT a FROM s [NOW] WHERE a = {v}" for n, v in enumerate(literals[:9])},
        "liked": "SELECT a FROM s [NOW] WHERE a LIKE '${env:HOME}' OR a LIKE '%${%:user%'",
        "named": f"SELECT {', '.join(f'a AS {name}' for name in names)} FROM s [NOW]",
        "counted": f"SELECT a, COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 HOUR] WHERE a <> {literals[0]}"
        " GROUP BY a",
        "whole": f"SELECT DISTINCT a || {literals[0]} AS b FROM s [ROWS 3] WHERE a <> {literals[1]}",
    }
    with opened(tmp_path / "state", spark) as headwater:
        headwater.execute(
            "CREATE STREAM s (a STRING, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;"
            + "".join(f"CREATE QUERY {name} AS {text};" for name, text in asked.items())
        )
        queries = {
            name: parse_query(text, headwater.definitions.namespace) for name, text in asked.items()
        }
        headwater.push("s", rows, timestamp_unit="us")
        headwater.execute("END STREAM s")
        settle(headwater)
        for name, query in queries.items():
            assert result_rows(headwater, name, query) == expected(query, {"s": rows}, {}), name
