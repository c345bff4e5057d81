"""`explain`, `show units` and `status` are true: after random histories, with rewiring, splits, un-sharing,
ends, moves and restarts, what they say of sharing is what runs. Without Spark, where steps read and commit
but compute no rows; and with it, where the logs that steps read are compared too."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from explained import Decisions, check_savings, check_views, fresh_units
from histories import CLIENT, from_files
from join_histories import LEFT, STREAMS, JoinHistory, made_in, random_join

from headwater.cql import CreateQuery, CreateStream, parse_query, unparse
from headwater.errors import CatalogError, CommitConflict
from headwater.reuse import partial_join_queries
from headwater.reuse.definition import operator_signature
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import (
    LogPosition,
    NewUnit,
    Segment,
    UnitRow,
    is_log,
    subscribers_log,
)
from headwater.runtime.compile import FOREVER
from headwater.runtime.compile.unit_plans import UnitPlanner, write_subscribers
from headwater.runtime.engine.hand_over import UnitRewiring
from headwater.runtime.engine.steps.inputs import StepContext
from headwater.runtime.engine.steps.step import Step
from headwater.runtime.engine.steps.stepper import Stepper
from headwater.runtime.engine.unit import Unit
from headwater.runtime.leases import ProcessLeases
from headwater.runtime.lifecycle import finish_queries, input_streams, reopen_stream
from headwater.runtime.results.subscribers import SUBSCRIBERS, emits_for
from headwater.runtime.storage.append import build_segment
from headwater.runtime.submit.hand_overs import (
    HandOverRefused,
    request_rewire,
    request_split,
    request_unshare,
)

SECOND = 1_000_000


def random_text(rng: random.Random) -> str:
    """Mostly joins; groups and a window that only equal queries can share."""
    kind = rng.random()
    if kind < 0.75:
        return unparse(random_join(rng))
    n = rng.randrange(4)
    others = (
        f"SELECT item FROM {LEFT.name} [NOW] WHERE v > {n}",
        f"SELECT item FROM {LEFT.name} [ROWS {n + 1}]",
        f"SELECT SUM(v) AS s FROM {LEFT.name} [RANGE 4 SEC SLIDE 2 SEC] WHERE item > {n}",
        f"SELECT item, MAX(v) AS s FROM {LEFT.name} [RANGE 6 SEC SLIDE 2 SEC] GROUP BY item",
    )
    return rng.choice(others)


@dataclass
class StillHistory:
    """A history whose units step without computing anything."""

    folder: Path
    rng: random.Random
    decisions: Decisions
    every: int = 1
    """After how many actions all is compared."""
    clock: int = 0
    submitted: list[str] = field(default_factory=list)
    happened: set[str] = field(default_factory=set)

    def run(self, actions: int) -> None:
        for turn in range(0, actions, 12):
            with open_state(self.folder / "state") as headwater:
                if not turn:
                    self._declare(headwater)
                for done in range(12):
                    self._act(headwater)
                    if not done % self.every:
                        check_views(headwater, self.decisions)
                self._measure(headwater)
                check_savings(headwater)

    def _declare(self, headwater: Headwater) -> None:
        for stream in STREAMS:
            kept = replace(stream, keep=20 * SECOND)
            headwater.execute(unparse(CreateStream(kept, None)))
        for _ in range(3):
            self._submit(headwater)

    def _act(self, headwater: Headwater) -> None:
        actions: list[tuple[int, Callable[[Headwater], None]]] = [
            (6, self._submit),
            (3, self._drop),
            (1, self._pause),
            (1, self._resume),
            (5, self._push),
            (6, self._step_some),
            (1, self._end),
            (2, self._reopen),
            (4, self._rewire),
            (4, self._split),
            (3, self._unshare),
            (5, self._advance),
            (1, self._move),
        ]
        weights = [weight for weight, _ in actions]
        self.rng.choices([act for _, act in actions], weights)[0](headwater)

    # ---- queries

    def _live(self, headwater: Headwater) -> list[str]:
        return [row.name for row in headwater.catalog.queries()]

    def _submit(self, headwater: Headwater) -> None:
        name = f"q{len(self.submitted)}"
        again = self.submitted and self.rng.random() < 0.3
        text = self.rng.choice(self.submitted) if again else random_text(self.rng)
        query = parse_query(text, headwater.definitions.namespace)
        lifetime = self.rng.choice([None, None, None, 5 * SECOND])
        headwater.execute(unparse(CreateQuery(name, query, lifetime=lifetime)))
        self.submitted.append(text)

    def _drop(self, headwater: Headwater) -> None:
        if live := self._live(headwater):
            headwater.execute(f"DROP QUERY {self.rng.choice(live)}")

    def _pause(self, headwater: Headwater) -> None:
        running = [row.name for row in headwater.catalog.queries() if row.state == "running"]
        if running:
            headwater.execute(f"PAUSE QUERY {self.rng.choice(running)}")

    def _resume(self, headwater: Headwater) -> None:
        paused = [row.name for row in headwater.catalog.queries() if row.state == "paused"]
        if paused:
            headwater.execute(f"RESUME QUERY {self.rng.choice(paused)}")

    # ---- data

    def _push(self, headwater: Headwater) -> None:
        self.clock += self.rng.choice([1, 1, 2, 7])
        for stream in self.rng.sample(STREAMS, self.rng.randint(1, 3)):
            row = headwater.catalog.stream(stream.name)
            if row is not None and not row.ended:
                rows = [(1, self.rng.randrange(4), self.clock * SECOND)]
                headwater.push(stream.name, rows, timestamp_unit="us")

    def _end(self, headwater: Headwater) -> None:
        for stream in STREAMS:
            headwater.catalog.end_stream(stream.name, reopens=True)

    def _reopen(self, headwater: Headwater) -> None:
        for row in headwater.catalog.streams():
            if row.ended:
                reopen_stream(headwater.catalog, row)

    # ---- steps that compute nothing

    def _step_some(self, headwater: Headwater) -> None:
        units = [row for row in headwater.catalog.units() if row.state == "running"]
        for row in self.rng.sample(units, min(len(units), self.rng.randint(1, 4))):
            self._step(headwater, row, {})

    def _step(self, headwater: Headwater, row: UnitRow, until: Mapping[str, int]) -> bool:
        """Read to the end of the inputs, or until there, as the engine does, and finish what is over."""
        catalog = headwater.catalog
        current = catalog.unit(row.id)
        if current is None or current.state != "running":
            return False
        unit = fresh_units(headwater).current(current)
        streams = input_streams(catalog, unit.row)
        worked = self._write_subscribers(headwater, unit) or self._read(headwater, unit, until)
        finish_queries(
            catalog,
            unit.row,
            unit.served_keys,
            streams,
            FOREVER,
            not worked,
            self._emits(headwater),
        )
        return worked

    def _emits(self, headwater: Headwater) -> Callable[[UnitRow, str], bool]:
        def emits(unit: UnitRow, name: str) -> bool:
            query = headwater.catalog.query(name)
            return query is not None and emits_for(headwater.catalog, unit, query.result_key)

        return emits

    def _write_subscribers(self, headwater: Headwater, unit: Unit) -> bool:
        cursor = headwater.catalog.cursor(unit.row.id, SUBSCRIBERS)
        if unit.plan.subscribers is None or (cursor and cursor["version"] == unit.row.version):
            return False
        folder = headwater.state / "log" / "members" / unit.row.id
        written = write_subscribers(unit.plan.subscribers, folder)
        at = {"seq": (cursor["seq"] if cursor else 0) + 1, "version": unit.row.version}
        segment = build_segment(subscribers_log(unit.row.id), written, None)
        cursors = {(unit.row.id, SUBSCRIBERS): at}
        headwater.catalog.commit(None, segments=[segment], cursors=cursors)
        return True

    def _read(self, headwater: Headwater, unit: Unit, until: Mapping[str, int]) -> bool:
        catalog = headwater.catalog
        cursors = {}
        for name in unit.inputs:
            at = LogPosition.from_json(catalog.cursor(unit.row.id, name))
            fresh = catalog.segments(name, at.seq, until.get(name))
            if fresh:
                cursors[unit.row.id, name] = at.after(fresh).to_json()
        if cursors:
            catalog.commit(None, cursors=cursors)
        return bool(cursors)

    # ---- what units read

    def _ask(self, kind: str, request: Callable[[], object]) -> None:
        try:
            request()
            self.happened.add(f"asked to {kind}")
        except (HandOverRefused, CatalogError, CommitConflict):
            pass

    def _rewire(self, headwater: Headwater) -> None:
        units = headwater.catalog.units()
        wide = [row for row in units if len(row.inputs) == 3] or units
        narrow = [row for row in units if len(row.inputs) == 2] or units
        if units:
            one, other = self.rng.choice(wide).id, self.rng.choice(narrow).id
            catalog, definitions = headwater.catalog, headwater.definitions
            self._ask("rewire", lambda: request_rewire(catalog, definitions, one, other, "forced"))

    def _split(self, headwater: Headwater) -> None:
        catalog, definitions = headwater.catalog, headwater.definitions
        planner = UnitPlanner(definitions)
        wide = [row for row in catalog.units() if len(row.inputs) == 3]
        if wide:
            unit = planner.ensure_definition(catalog, self.rng.choice(wide))
            operator = planner.operator(unit)
            parts = (
                [] if operator is None else [*partial_join_queries(operator_signature(operator))]
            )
            if parts:
                part = self.rng.choice(parts)
                self._ask(
                    "split", lambda: request_split(catalog, definitions, unit.id, part, "forced")
                )

    def _unshare(self, headwater: Headwater) -> None:
        catalog, definitions = headwater.catalog, headwater.definitions
        readers = [u for u in catalog.units() if any(n.startswith("unit:") for n in u.inputs)]
        if readers:
            unit = self.rng.choice(readers).id
            self._ask("unshare", lambda: request_unshare(catalog, definitions, unit, "forced"))

    def _advance(self, headwater: Headwater) -> None:
        """Let what was asked for be done."""
        catalog = headwater.catalog
        before = len(catalog.events(kind="unit rewired", limit=1_000))
        leases = ProcessLeases(catalog, "a test", 60)
        rewiring = UnitRewiring(
            catalog,
            fresh_units(headwater),
            leases,
            lambda row, until: self._step(headwater, row, until),
            lambda point: None,
        )
        for _ in range(3):
            rewiring.advance()
        leases.release_all()
        made = catalog.events(kind="unit rewired", limit=1_000)[: -before or None]
        for event in made:
            to_rows = any(name.startswith("unit:") for name in event.detail["to"])
            self.happened.add("rows" if to_rows else "streams")

    def _move(self, headwater: Headwater) -> None:
        """Move a query to a unit of its own, as one that fails is."""
        catalog = headwater.catalog
        rows = [row for row in catalog.queries() if catalog.unit(row.unit_id)]
        if not rows:
            return
        query = self.rng.choice(rows)
        unit = catalog.unit(query.unit_id)
        assert unit is not None
        if len(catalog.subscribers(unit.id)) > 1:
            new = NewUnit(unit.digest, "", unit.inputs, unit.version + 1)
            paths = {s.id: s.path for s in catalog.segments_of_unit(unit.id) if s.path}
            catalog.move_queries(None, unit, new, [query.name], paths)
            self.happened.add("moved")

    def _measure(self, headwater: Headwater) -> None:
        """Some units are measured to take some time."""
        for row in headwater.catalog.units():
            if self.rng.random() < 0.8:
                values = {(row.id, "cpu_rate"): self.rng.random(), (row.id, "cpu_steps"): 5.0}
                headwater.catalog.set_statistics(values)


@contextmanager
def noted_decisions() -> Iterator[Decisions]:
    with pytest.MonkeyPatch.context() as patch:
        decisions = Decisions()
        decisions.record(patch)
        yield decisions


def check_history(folder: Path, seed: int, actions: int, every: int = 1) -> set[str]:
    with noted_decisions() as decisions:
        history = StillHistory(folder, random.Random(seed), decisions, every)
        history.run(actions)
        return history.happened


@pytest.mark.parametrize("seed", range(3))
def test_what_is_said_of_sharing_is_what_runs(tmp_path: Path, seed: int) -> None:
    check_history(tmp_path, seed, 24, every=6)


@pytest.mark.long
@pytest.mark.parametrize("seed", [10])
def test_what_is_said_of_sharing_is_what_runs_for_longer(tmp_path: Path, seed: int) -> None:
    """Seeds in which units change what they read."""
    assert "rows" in check_history(tmp_path, seed, 84)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_what_is_said_of_sharing_is_what_runs_in_the_long_run(tmp_path: Path, seed: int) -> None:
    check_history(tmp_path, seed, 240)


# ---- with Spark


@dataclass
class ReadLogs:
    """The logs that steps have read, by unit and version."""

    by_unit: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    _stepping: threading.local = field(default_factory=threading.local)

    def record(self, monkeypatch: pytest.MonkeyPatch) -> None:
        step, input_segments = Stepper.step, StepContext.input_segments

        def noted_step(stepper: Stepper, unit: Unit) -> Step | None:
            self._stepping.logs = set[str]()
            done = step(stepper, unit)
            self.by_unit.setdefault((unit.row.id, unit.row.version), set()).update(
                self._stepping.logs
            )
            return done

        def noted_segments(context: StepContext, log: str, *args: int) -> list[Segment]:
            if hasattr(self._stepping, "logs"):
                self._stepping.logs.add(log)
            return input_segments(context, log, *args)

        monkeypatch.setattr(Stepper, "step", noted_step)
        monkeypatch.setattr(StepContext, "input_segments", noted_segments)


@dataclass
class ExplainedHistory(JoinHistory):
    """A history in which all that is said is compared after each action."""

    decisions: Decisions = field(default_factory=Decisions)
    read: ReadLogs = field(default_factory=ReadLogs)
    compared: int = 0

    def _act(self, headwater: Headwater) -> None:
        super()._act(headwater)
        check_views(headwater, self.decisions, headwater.engine.units.current)
        for unit in headwater.catalog.units():
            logs = self.read.by_unit.get((unit.id, unit.version))
            names = [
                query.name for query in headwater.catalog.queries() if query.unit_id == unit.id
            ]
            if logs is not None and names:
                said = headwater.query(names[0]).placement().reads
                assert {f"unit:{one.unit}" for one in said} == {
                    log for log in logs if log.startswith("unit:")
                }
                assert logs == {name for name in unit.inputs if is_log(name)}
                self.compared += 1
        check_savings(headwater)


def check_explained_history(spark: Any, folder: Path, seed: int, actions: int) -> dict[str, int]:
    rng = random.Random(seed)
    inlet = from_files(folder) if rng.random() < 0.5 else CLIENT
    lateness, keep = rng.choice([0, 2, 3600]), rng.choice([3600, 8, 20]) * SECOND
    with pytest.MonkeyPatch.context() as patch:
        history = ExplainedHistory(rng, spark, folder, actions, inlet, lateness, False, keep)
        history.decisions.record(patch)
        history.read.record(patch)
        history.run()
    assert history.compared
    return made_in(folder)


@pytest.mark.spark
def test_what_is_said_is_what_steps_read(spark: Any, tmp_path: Path) -> None:
    check_explained_history(spark, tmp_path, 1, 40)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 220))
def test_what_is_said_is_what_steps_read_in_the_long_run(
    spark: Any, tmp_path: Path, seed: int
) -> None:
    check_explained_history(spark, tmp_path, seed, 80)
