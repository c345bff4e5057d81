"""What a state consists of is its owner's alone, whatever the umask, and if it was not it becomes so."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.runtime.api import open_state
from headwater.runtime.catalog import Catalog

TEXT = "CREATE STREAM s (v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT"


@pytest.fixture(autouse=True)
def generous() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def filled(state: Path) -> None:
    with open_state(state) as headwater:
        headwater.execute(TEXT)
        headwater.push("s", [(1, 1)], timestamp_unit="us")
        everything = [state, *state.rglob("*")]
        assert len(everything) >= 7  # also the files that SQLite has while it is open
        for path in everything:
            assert mode(path) == (0o700 if path.is_dir() else 0o600), path


def test_a_new_state_is_its_owners_alone(tmp_path: Path) -> None:
    filled(tmp_path / "some" / "state")
    assert mode(tmp_path / "some") == 0o777, "what is above is not the state's"


def test_a_catalog_that_is_made_by_itself(tmp_path: Path) -> None:
    with Catalog.open(tmp_path / "own" / "catalog.sqlite"):
        assert {mode(path) for path in (tmp_path / "own").iterdir()} == {0o600}


def test_a_state_of_an_earlier_release_is_closed_to_others_and_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / "state"
    filled(state)
    (state / "engine.log").touch()
    (state / "north" / "log").mkdir(parents=True)
    for path in (state, *state.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert caplog.text == ""
    with open_state(state):
        pass
    assert caplog.text.count("could be read by other users") == 1
    for path in (state, *state.iterdir()):
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path
    with open_state(state):
        pass
    assert caplog.text.count("could be read by other users") == 1


def test_files_that_vanish_while_a_state_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite deletes its journal when another process closes the catalog."""
    filled(tmp_path)
    listed = Path.iterdir

    def list_with_journal(folder: Path) -> Iterator[Path]:
        yield from listed(folder)
        if folder == tmp_path:
            yield folder / "catalog.sqlite-journal"

    monkeypatch.setattr(Path, "iterdir", list_with_journal)
    filled(tmp_path)


def test_a_folder_that_holds_more_than_a_state_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    for _ in range(2):
        with open_state(tmp_path) as headwater:
            headwater.execute(TEXT)
            headwater.push("s", [(1, 1)], timestamp_unit="us")
    assert mode(tmp_path) == 0o755 and mode(tmp_path / "letters") == 0o755
    assert mode(tmp_path / "catalog.sqlite") == 0o600 and mode(tmp_path / "log") == 0o700
