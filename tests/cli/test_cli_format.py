from __future__ import annotations

import stat
from pathlib import Path

import pytest
from command_line import AIRLINE, MISTAKES, ROOT, STREAM, Run, Write

from headwater.cli.output.formatting import collect_comments, format_statements
from headwater.cql import parse, unparse

EXAMPLES = [p for p in (ROOT / "examples").rglob("*.cql") if p != MISTAKES]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: str(p.relative_to(ROOT)))
def test_examples_keep_their_meaning_and_their_comments(path: Path, run: Run) -> None:
    done = run("format", path)
    assert (done.status, done.err) == (0, "")
    before, after = path.read_text(), done.out
    assert list(map(unparse, parse(before))) == list(map(unparse, parse(after)))
    assert comments(before) == comments(after)
    assert format_statements(after, parse(after)) == after


def comments(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip().startswith("--")]


def test_lines_may_end_as_on_windows() -> None:
    text = STREAM + "-- why\nSELECT a -- what\nFROM s; -- where\n"
    windows = text.replace("\n", "\r\n")
    assert format_statements(windows, parse(windows)) == format_statements(text, parse(text))


def test_check_changes_nothing(run: Run, write: Write) -> None:
    path = write("select   a from s")
    before = path.read_text()
    done = run("format", path, "--check")
    assert (done.status, done.out, path.read_text()) == (1, "", before)
    assert "would be reformatted" in done.err


def test_write(run: Run, write: Write) -> None:
    path = write("-- why\nselect   a from s -- what")
    path.chmod(0o640)
    assert run("format", path, "--write").status == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    text = path.read_text()
    assert "-- why\nSELECT" in text
    assert text.endswith(";  -- what\n")
    assert [p.name for p in path.parent.iterdir()] == ["test.cql"]
    assert run("format", path, "--check").status == 0


def test_write_follows_a_link(run: Run, write: Write, tmp_path: Path) -> None:
    path = write("select   a from s")
    link = tmp_path / "link.cql"
    link.symlink_to(path)
    run("format", link, "--write")
    assert link.is_symlink()
    assert run("format", path, "--check").status == 0


def test_write_and_check_exclude_each_other(run: Run) -> None:
    assert run("format", AIRLINE, "--write", "--check").status == 2


def test_standard_input_cannot_be_rewritten(run: Run) -> None:
    done = run("format", "-", "--write", stdin=STREAM)
    assert (done.status, done.out) == (2, "")


def test_a_file_with_mistakes_stays(run: Run, write: Write) -> None:
    path = write("-- why\nselect nothing from s;")
    before = path.read_text()
    assert run("format", path, "--write").status == 1
    assert path.read_text() == before


def test_where_comments_go() -> None:
    text = """\
/* head */ SELECT 1 -- one
  /* two */ FROM s;  -- behind


-- section

-- of q
SELECT ';' /* not -- a comment of its own */ ;
; -- lonely
SELECT '-- text'
-- end
"""
    found, rest = collect_comments(text)
    assert [r.before for r in found] == ["/* head */\n", "-- section\n\n-- of q\n", "-- lonely\n"]
    assert [r.inside for r in found] == [
        ["-- one\n  /* two */"],
        ["/* not -- a comment of its own */"],
        [],
    ]
    assert [r.trailing for r in found] == ["-- behind", "", ""]
    assert rest == "-- end"


@pytest.mark.parametrize(
    "comment",
    ["-- plain", "/* block */", "/* two\n   lines */", "/* nested /* in */ it */", "-- ;'`"],
)
@pytest.mark.parametrize("place", range(5))
def test_a_comment_survives_anywhere(comment: str, place: int) -> None:
    parts = [STREAM, "select", " a from s", ";", "select b from s;", ""]
    parts.insert(place + 1, f"\n{comment}\n")
    text = "".join(parts)
    result = format_statements(text, parse(text))
    assert result.count(comment) == 1
    assert format_statements(result, parse(result)) == result
