"""The airline demo: what is simulated fits its streams, what is asked is what it is said to be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from headwater.algebra.canonical import canonicalize
from headwater.algebra.catalog import Stream
from headwater.algebra.times import parse_timestamp
from headwater.cql import CreateQuery, CreateStream, parse
from headwater.reference.data import load_rows
from headwater.runtime.api import open_state

ROOT = Path(__file__).parents[2]
AIRLINE = ROOT / "examples" / "airline"


@pytest.fixture(scope="module")
def simulate() -> ModuleType:
    return _example("simulate")


@pytest.fixture(scope="module")
def workload() -> ModuleType:
    return _example("workload")


def _example(name: str) -> ModuleType:
    sys.path.insert(0, str(AIRLINE))
    try:
        return __import__(name)
    finally:
        sys.path.remove(str(AIRLINE))


def declared() -> dict[str, Stream]:
    statements = parse((AIRLINE / "airline.cql").read_text())
    return {s.stream.name: s.stream for s in statements if isinstance(s, CreateStream)}


def written(folder: Path) -> dict[str, list[str]]:
    """The lines of each stream, in the order in which they came."""
    return {
        stream.name: [
            line for file in sorted(stream.iterdir()) for line in file.read_text().splitlines()
        ]
        for stream in sorted(folder.iterdir())
    }


def test_the_same_happens_at_every_speed(simulate: ModuleType, tmp_path: Path) -> None:
    assert simulate.simulate(tmp_path / "once", 60, 0, 7) == simulate.simulate(
        tmp_path / "fast", 60, 200, 7
    )
    once = written(tmp_path / "once")
    assert once == written(tmp_path / "fast")
    simulate.simulate(tmp_path / "other", 60, 0, 8)
    assert once != written(tmp_path / "other")


def test_events_fit_their_streams_and_none_is_too_late(
    simulate: ModuleType, tmp_path: Path
) -> None:
    simulate.simulate(tmp_path, 300, 0, 1)
    streams = declared()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(streams)
    for name, stream in streams.items():
        parts = sorted((tmp_path / name).iterdir())
        assert len(parts) > 3
        whole = tmp_path / f"{name}.jsonl"
        whole.write_bytes(b"".join(part.read_bytes() for part in parts))
        rows = load_rows(tmp_path, name, stream.schema, time=stream.time)
        assert len(rows) > 20
        latest = 0
        for line in whole.read_text().splitlines():
            at = parse_timestamp(json.loads(line)["ts"])
            assert at >= latest - stream.lateness
            latest = max(latest, at)


def test_a_file_appears_when_it_is_complete(
    simulate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    rename = Path.rename

    def watched(path: Path, target: Path) -> Path:
        assert path.name.startswith(".")
        assert path.read_text().endswith("\n")
        assert not target.exists()
        seen.append(target.name)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", watched)
    simulate.simulate(tmp_path, 60, 0, 1)
    assert seen
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.long
def test_the_queries_are_two_hundred_on_a_handful_of_units(
    workload: ModuleType, tmp_path: Path
) -> None:
    asked = workload.workload()
    text = workload.streams(Path("in")) + "\n".join(map(str, asked))
    queries = [s for s in parse(text) if isinstance(s, CreateQuery)]
    assert [q.name for q in queries] == [a.name for a in asked]
    digests = Counter(canonicalize(q.query).digest for q in queries)
    assert len(queries) > 200 > len(digests) > 150
    assert {"gate", "terminal", "passenger", "monitoring"} < {a.kind for a in asked}
    with open_state(tmp_path) as headwater:
        headwater.execute(text)
        assert len(headwater.catalog.units()) < 20


def test_the_workload_reads_what_the_simulation_writes(
    workload: ModuleType, simulate: ModuleType
) -> None:
    statements = parse(workload.streams(Path("some") / "where"))
    sources = {s.stream.name: s.source for s in statements if isinstance(s, CreateStream)}
    assert set(sources) == set(simulate.STREAMS)
    for name, source in sources.items():
        assert source is not None
        assert source.get("path") == f"some/where/{name}"
        assert source.get("format") == "json"


def demo(*options: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [ROOT / "scripts" / "demo", *options],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.long
def test_the_language_needs_no_java() -> None:
    done = demo("--language")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 mistakes" in done.stdout


@pytest.mark.spark
def test_the_demo_runs_without_a_terminal_and_all_is_equal() -> None:
    done = demo("--seconds", "180", "--speed", "30")
    assert done.returncode == 0, done.stdout + done.stderr
    asked = len(_example("workload").workload())
    assert f"{asked} of {asked} queries equal, row for row" in done.stdout
    assert "\x1b" not in done.stdout
