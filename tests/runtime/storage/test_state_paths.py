"""Names lead nowhere out of a state, and paths only where its owner allows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import HeadwaterError, InputError
from headwater.runtime.api import open_state
from headwater.runtime.connectors.file_sink import write_sink_file
from headwater.runtime.connectors.open_sources import check_source_paths
from headwater.runtime.connectors.options import FileSinkOptions
from headwater.runtime.connectors.sink_batch import ResultChunk
from headwater.runtime.storage import append, segment_files
from headwater.runtime.storage.paths import allowed_paths, check_paths, file_name

NAMES = ("../../x", "/abs/x", "..", ".", "a\\b", "x" * 300, "Ü" * 100, "a[1]*{b}?", "a\nb", "~2e")
STREAM = "CREATE STREAM `{}` (v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM {}"


@given(st.lists(st.text(min_size=1) | st.text("aA/.~x", min_size=1, max_size=90), max_size=8))
def test_the_files_of_different_names_are_different_and_harmless(names: list[str]) -> None:
    harmless = set("abcdefghijklmnopqrstuvwxyz0123456789_-~")
    made = {name.lower(): file_name(name) for name in names}
    assert len({made_name.lower() for made_name in made.values()}) == len(made)
    for made_name in made.values():
        assert set(made_name) <= harmless and 0 < len(made_name) <= 80


@given(st.text("abcdefghijklmnopqrstuvwxyz0123456789_-", min_size=1, max_size=60))
def test_the_folder_of_a_plain_name_is_the_name(name: str) -> None:
    assert file_name(name) == name == file_name(name.upper())


def everything(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_stream_or_query_leads_out_of_the_state(tmp_path: Path, name: str) -> None:
    state = tmp_path / "some" / "where" / "state"
    with open_state(state) as headwater:
        headwater.execute(STREAM.format(name, "CLIENT"))
        sink = state / "sunk" / "results"
        headwater.execute(
            f"CREATE QUERY `{name}` "
            f"TO files(path => '{sink}', format => 'json') AS SELECT v FROM `{name}` [NOW]"
        )
        before = everything(tmp_path) - everything(state)
        assert headwater.push(name, [(1, 1)], timestamp_unit="us") == 1
        (segment,) = headwater.catalog.segments(f"stream:{name.lower()}")
        assert Path(segment.path).is_relative_to(state / "log" / "streams")
        assert segment_files.read_arrow(segment).num_rows == 1
        row = headwater.query(name).row
        piece = ResultChunk(
            row,
            segment,
            segment_files.read_arrow(segment)
            .select(["v"])
            .append_column("_tau", segment_files.read_arrow(segment)["ts"]),
        )
        write_sink_file(FileSinkOptions(str(sink), "parquet"), piece, ())
        assert len(list(sink.iterdir())) == 1
        assert everything(tmp_path) - everything(state) == before


def test_a_stream_whose_folder_was_named_otherwise_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state of an earlier release: its segments stay where they are."""
    with open_state(tmp_path) as headwater:
        headwater.execute(STREAM.format("my stream", "CLIENT"))
        with monkeypatch.context() as earlier:
            earlier.setattr(append, "file_name", str.lower)
            headwater.push("my stream", [(1, 1)], timestamp_unit="us")
        headwater.push("my stream", [(2, 2)], timestamp_unit="us")
        old, new = headwater.catalog.segments("stream:my stream")
        assert Path(old.path).parent.name == "my stream"
        assert Path(new.path).parent.name == "my~20stream"
        assert [segment_files.read_arrow(s)["v"].to_pylist() for s in (old, new)] == [[1], [2]]
        assert headwater.verify().is_sound


# ---- allowed roots


def test_paths_are_restricted_to_the_roots_of_the_state(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir(), outside.mkdir()
    (inside / "link").symlink_to(outside)
    source = "files(path => '{}', format => 'json')"
    with open_state(tmp_path / "state", allow_paths=[inside]) as headwater:
        headwater.execute(STREAM.format("good", source.format(inside)))
    with open_state(tmp_path / "state") as headwater:
        assert allowed_paths(headwater.catalog) == (inside,)
        for path in (outside, inside / ".." / "out", inside / "link", "/", tmp_path / "inner"):
            with pytest.raises(InputError, match="outside of what this state allows"):
                headwater.execute(STREAM.format("s", source.format(path)))
            with pytest.raises(InputError, match="outside of what this state allows"):
                headwater.execute(f"CREATE QUERY q TO {source.format(path)} AS SELECT v FROM good")
            with pytest.raises(InputError, match="outside of what this state allows"):
                headwater.execute(f"CREATE TABLE t (v INT) FROM {source.format(path)}")
        headwater.execute(f"CREATE QUERY q TO {source.format(inside / 'o')} AS SELECT v FROM good")
        with pytest.raises(HeadwaterError, match="allow_path"):
            headwater.execute("SET allow_path = '/'")
    with open_state(tmp_path / "state", allow_paths=["/"]) as headwater:
        headwater.execute(STREAM.format("s", source.format(outside)))


def test_a_link_that_came_after_the_declaration_is_seen(tmp_path: Path) -> None:
    inside, secret = tmp_path / "in", tmp_path / "secret.json"
    inside.mkdir()
    secret.write_text('{"v": 1}')
    with open_state(tmp_path / "state", allow_paths=[inside]) as headwater:
        headwater.execute(STREAM.format("s", f"files(path => '{inside}', format => 'json')"))
        declared = headwater.definitions.streams["s"].source
        roots = allowed_paths(headwater.catalog)
        (inside / "plain.json").write_text('{"v": 2}')
        check_source_paths(declared, roots)
        (inside / "link.json").symlink_to(secret)
        with pytest.raises(InputError, match=r"secret.json is outside|leads to .*secret.json"):
            check_source_paths(declared, roots)


def test_a_root_has_to_be_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        open_state(tmp_path / "state", allow_paths=[tmp_path / "none"])
    check_paths([tmp_path], ())
