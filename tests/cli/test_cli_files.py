"""What every command says about files that it cannot use."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Run

COMMANDS = [("check",), ("format",), ("explain",), ("eval", "--input", ".")]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
class TestEveryCommand:
    def test_missing(self, command: tuple[str, ...], run: Run, tmp_path: Path) -> None:
        done = run(*command, tmp_path / "none.cql")
        assert (done.status, done.out) == (2, "")
        assert f"{tmp_path / 'none.cql'}: no such file" in done.err

    def test_missing_but_something_similar_is_there(
        self, command: tuple[str, ...], run: Run, tmp_path: Path
    ) -> None:
        (tmp_path / "flights.cql").touch()
        assert "did you mean flights.cql?" in run(*command, tmp_path / "fligths.cql").err

    def test_directory(self, command: tuple[str, ...], run: Run, tmp_path: Path) -> None:
        done = run(*command, tmp_path)
        assert (done.status, done.out) == (2, "")
        assert "is a directory, not a file" in done.err

    def test_unreadable(
        self, command: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(path: Path) -> bytes:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(Path, "read_bytes", refuse)
        done = run(*command, "secret.cql")
        assert (done.status, done.out) == (2, "")
        assert "secret.cql: cannot be read: Permission denied" in done.err

    @pytest.mark.parametrize("text", ["", " \n\t\n", "\ufeff"])
    def test_empty(self, command: tuple[str, ...], text: str, run: Run, tmp_path: Path) -> None:
        path = tmp_path / "empty.cql"
        path.write_text(text, encoding="utf-8")
        done = run(*command, path)
        assert (done.status, done.out) == (2, "")
        assert "empty.cql is empty" in done.err

    def test_comments_alone(self, command: tuple[str, ...], run: Run, tmp_path: Path) -> None:
        path = tmp_path / "comments.cql"
        path.write_text("-- nothing yet\n")
        done = run(*command, path)
        assert (done.status, done.out) == (2, "")
        assert "comments.cql has no " in done.err

    def test_not_utf8(self, command: tuple[str, ...], run: Run, tmp_path: Path) -> None:
        path = tmp_path / "latin1.cql"
        path.write_bytes(b"-- caf\n-- caf\xe9\n")
        done = run(*command, path)
        assert (done.status, done.out) == (2, "")
        assert "not UTF-8 text: byte 13 (line 2) is 0xe9" in done.err

    def test_name_too_long_for_the_system(self, command: tuple[str, ...], run: Run) -> None:
        done = run(*command, "x" * 5000)
        assert (done.status, done.out) == (2, "")
        assert "cannot be read" in done.err

    def test_mistakes_in_the_text(self, command: tuple[str, ...], run: Run, tmp_path: Path) -> None:
        path = tmp_path / "wrong.cql"
        path.write_text("SELECT 1\nFROM nowhere [NOW]")
        done = run(*command, path)
        assert done.status == 1
        assert f"{path}:2:6: " in done.out + done.err


def test_a_byte_order_mark_is_no_mistake(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bom.cql"
    path.write_text("\ufeffCREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;")
    assert run("check", path).status == 0


def test_standard_input(run: Run) -> None:
    text = "CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;"
    assert run("check", "-", stdin=text).out == "1 statement, 0 queries: ok\n"


def test_mistakes_in_standard_input(run: Run) -> None:
    done = run("check", "-", stdin="SELECT x FROM nowhere [NOW]")
    assert done.status == 1
    assert "<stdin>:1:15: " in done.out
