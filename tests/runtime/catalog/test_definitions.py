"""Declarations as a catalog has them, whoever changed it."""

from __future__ import annotations

from pathlib import Path

from headwater.runtime.api import open_state

STREAM = "CREATE STREAM {} (a INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;"


def test_they_come_by_name_and_follow_what_others_do(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n")
    with open_state(tmp_path / "state") as one, open_state(tmp_path / "state") as other:
        one.execute("".join(map(STREAM.format, ("z", "b", "m", "a"))))
        assert list(other.definitions.streams) == ["a", "b", "m", "z"]
        one.execute("DROP STREAM m; DROP STREAM b")
        one.execute(f"CREATE TABLE b (a INT) FROM files(path => '{tmp_path / 't.csv'}')")
        assert list(other.definitions.streams) == ["a", "z"]
        assert list(other.definitions.tables) == ["b"]
        assert other.definitions.namespace.get("m") is None
        other.execute("CREATE QUERY q AS SELECT z.a FROM z [NOW], b WHERE z.a = b.a")


def test_what_was_read_stays_as_it_was(tmp_path: Path) -> None:
    """Threads go on reading what they have while another meets a change."""
    with open_state(tmp_path / "state") as one, open_state(tmp_path / "state") as other:
        one.execute(STREAM.format("a"))
        before = other.definitions.streams
        one.execute("DROP STREAM a; " + STREAM.format("b"))
        assert list(other.definitions.streams) == ["b"] and list(before) == ["a"]
