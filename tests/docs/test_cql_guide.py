"""Every example of the language guide is run, and its lists are complete.

The fenced blocks of docs/cql.md are taken in order. `cql` blocks declare streams and tables or ask; a
`csv stream=NAME` block is the data of that stream or table from there on; a `json` block holds the
rows of the last query before it, as `headwater eval` prints them, without the query's name; a
`cql error` block must be refused with the words of the `text` block after it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.algebra.catalog import Namespace
from headwater.algebra.functions import AGGREGATES, FUNCTIONS
from headwater.cli import app
from headwater.cql import CreateStream, CreateTable, parse
from headwater.errors import CqlError

GUIDE = Path(__file__).parents[2] / "docs" / "cql.md"
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its line, its language, the words behind it, and what it holds."""

    line: int
    language: str
    words: str
    body: str


@dataclass(frozen=True)
class Example:
    """Something asked, over what was declared and given before it, and what shall come of it."""

    line: int
    text: str
    declared: str
    data: tuple[tuple[str, str], ...]
    rows: str | None = None
    error: str | None = None


@cache
def blocks() -> list[Block]:
    text = GUIDE.read_text()
    return [
        Block(text.count("\n", 0, fence.start()) + 1, fence[1], fence[2].strip(), fence[3])
        for fence in FENCE.finditer(text)
    ]


def examples() -> list[Example]:
    found = []
    declared, data = "", dict[str, str]()
    for block, following in pairwise([*blocks(), Block(0, "", "", "")]):
        if block.language == "csv":
            data[block.words.removeprefix("stream=")] = block.body
        elif block.language == "cql" and re.match(r"CREATE (STREAM|TABLE)\b", block.body):
            found.append(Example(block.line, block.body, declared, ()))
            declared += block.body
        elif block.language == "cql":
            wanted = "text" if block.words == "error" else "json"
            answer = following.body if following.language == wanted else None
            rows, error = (None, answer or "") if wanted == "text" else (answer, None)
            found.append(
                Example(block.line, block.body, declared, tuple(data.items()), rows, error)
            )
    return found


def _of_kind(*, rows: bool, error: bool) -> list[object]:
    return [
        pytest.param(example, id=f"line {example.line}")
        for example in examples()
        if (example.rows is not None) == rows and (example.error is not None) == error
    ]


@pytest.mark.parametrize("example", _of_kind(rows=True, error=False))
def test_queries_give_the_rows_shown(example: Example, tmp_path: Path) -> None:
    (tmp_path / "it.cql").write_text(example.declared + example.text)
    for name, body in example.data:
        (tmp_path / f"{name}.csv").write_text(body)
    command = ["eval", str(tmp_path / "it.cql"), "--input", str(tmp_path), "--format", "json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    printed = [json.loads(line) for line in result.stdout.splitlines()]
    got = [{k: v for k, v in row.items() if k != "_query"} for row in printed]
    shown = [json.loads(line) for line in (example.rows or "").splitlines()]
    assert _in_order(got) == _in_order(shown)
    assert [list(row) for row in got] == [list(row) for row in shown]


def _in_order(rows: list[dict[str, object]]) -> list[str]:
    return sorted(json.dumps(row) for row in rows)


@pytest.mark.parametrize("example", _of_kind(rows=False, error=False))
def test_statements_are_accepted(example: Example) -> None:
    assert parse(example.declared + example.text)


@pytest.mark.parametrize("example", _of_kind(rows=False, error=True))
def test_mistakes_are_refused_in_the_words_shown(example: Example) -> None:
    declared = parse(example.declared)
    names = Namespace.of(
        statement.stream if isinstance(statement, CreateStream) else statement.table
        for statement in declared
        if isinstance(statement, CreateStream | CreateTable)
    )
    with pytest.raises(CqlError) as refused:
        parse(example.text, names)
    assert str(refused.value).rstrip("\n") == (example.error or "").rstrip("\n")


def _refused() -> list[tuple[str, str]]:
    """Each query of the last table, and what its second cell says to write instead."""
    table = GUIDE.read_text().partition("\n| refused | instead |\n")[2]
    return re.findall(r"^\| `([^`]+)` \| (.+) \|$", table, re.MULTILINE)


@pytest.mark.parametrize(("query", "instead"), _refused(), ids=lambda text: text[:60])
def test_what_is_refused_is_and_what_to_write_instead_is_not(query: str, instead: str) -> None:
    declared = max((example.declared for example in examples()), key=len)
    with pytest.raises(CqlError):
        parse(f"{declared}{query};")
    for advice in re.findall(r"`((?:SELECT|WITH|RSTREAM)[^`]+)`", instead):
        assert parse(f"{declared}{advice};")


def test_every_block_is_understood() -> None:
    languages = {block.language for block in blocks()}
    assert languages <= {"cql", "csv", "json", "text", "sh"}
    assert sum(block.language == "json" for block in blocks()) == len(
        _of_kind(rows=True, error=False)
    )


def _names(section: str) -> list[str]:
    """The first cells of the tables of a section."""
    text = GUIDE.read_text().partition(f"\n{section}\n")[2]
    level = section.partition(" ")[0]
    text = re.split(rf"^#{{2,{len(level)}}} ", text, flags=re.MULTILINE)[0]
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def test_all_functions_and_no_others_are_listed() -> None:
    listed = _names("## Operators and functions")
    assert sorted(listed) == sorted([*FUNCTIONS, *AGGREGATES])
    assert sorted(_names("### Aggregates")) == sorted(AGGREGATES)
