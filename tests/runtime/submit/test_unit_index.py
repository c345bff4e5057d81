"""What is known of units stays as the catalog has it, whoever changes them; nothing here needs Spark."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headwater.algebra.canonical import canonicalize
from headwater.cql import CreateQuery, parse
from headwater.reuse import Containment, classify_containment, signature_of
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import Catalog, QueryRow, UnitRow
from headwater.runtime.compile import unit_plans
from headwater.runtime.submit import scripts
from headwater.runtime.submit.unit_index import UnitIndex, unit_index

STREAMS = """
CREATE STREAM bids (item INT, price INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM asks (item INT, cost INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
"""
TEMPLATES = (
    "SELECT b.price FROM bids [RANGE {n} SEC] b, asks [NOW] a WHERE b.item = a.item AND b.price > {m}",
    "SELECT b.price FROM bids [RANGE {n} SEC] b, asks [NOW] a WHERE b.item = a.cost AND b.item = {m}",
    "SELECT item FROM bids [NOW] WHERE price < {m}",
    "SELECT item FROM bids [ROWS {n}]",
    "SELECT sum(price) FROM bids [RANGE {n} SEC SLIDE 1 SEC]",
)


def known(headwater: Headwater) -> UnitIndex:
    return unit_index(headwater.catalog, headwater.definitions)


def check(headwater: Headwater) -> None:
    """What was kept up is what reading all would give."""
    kept = known(headwater)
    kept.refresh()
    fresh = UnitIndex(headwater.catalog, headwater.definitions)
    fresh.refresh()
    assert kept._mark() == fresh._mark() == headwater.catalog.units_fingerprint()
    assert kept._units.keys() == fresh._units.keys()
    assert {k: v for k, v in kept._relations._units.items() if v} == fresh._relations._units
    for unit_id in fresh._units:
        assert (unit_id in kept.lattice) == (unit_id in fresh.lattice)
        if unit_id in fresh.lattice:
            one, other = kept.lattice.operator(unit_id), fresh.lattice.operator(unit_id)
            assert (one.sharing_key, one.sources, one.where) == (
                other.sharing_key,
                other.sources,
                other.where,
            )


@pytest.mark.parametrize("seed", range(3))
def test_two_who_submit_and_drop_in_turn(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    names: list[str] = []
    with open_state(tmp_path / "state") as one, open_state(tmp_path / "state") as other:
        one.execute(STREAMS)
        for number in range(30):
            headwater = rng.choice((one, other))
            if names and rng.random() < 0.25:
                headwater.execute(f"DROP QUERY {names.pop(rng.randrange(len(names)))}")
            else:
                text = rng.choice(TEMPLATES).format(n=rng.randint(1, 3), m=rng.randint(1, 9))
                headwater.execute(f"CREATE QUERY q{number} AS {text}")
                names.append(f"q{number}")
            if rng.random() < 0.3:
                check(rng.choice((one, other)))
        check(one)
        check(other)
        assert len(one.catalog.units()) < len(names)


def test_who_submits_alone_never_reads_all_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    whole = Catalog.units

    def counted(self: Catalog, *, dropped: bool = False) -> list[UnitRow]:
        reads.append(1)
        return whole(self, dropped=dropped)

    monkeypatch.setattr(Catalog, "units", counted)
    with open_state(tmp_path / "state") as headwater:
        headwater.execute(STREAMS)
        for number in range(12):
            text = TEMPLATES[number % len(TEMPLATES)].format(n=1 + number % 3, m=number)
            headwater.execute(f"CREATE QUERY q{number} AS {text}")
    assert not reads


def test_a_submitter_overtaken_by_another_chooses_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both relax the same unit; neither may lose what it needs."""
    text = "CREATE QUERY {} AS SELECT item FROM bids [NOW] WHERE price > {}"
    with open_state(tmp_path / "state") as one, open_state(tmp_path / "state") as other:
        one.execute(STREAMS + text.format("first", 9))
        accept = one.catalog.accept_query

        def overtaken(*args: Any, **named: Any) -> QueryRow:
            monkeypatch.setattr(one.catalog, "accept_query", accept)
            other.execute(text.format("theirs", 3))
            return accept(*args, **named)

        monkeypatch.setattr(one.catalog, "accept_query", overtaken)
        one.execute(text.format("mine", 6))
        (unit,) = one.catalog.units()
        assert "4" in unit.definition and unit.version == 3
        assert one.query("mine").placement().relation == "contained"
        assert one.query("theirs").placement().relation == "overlapping"
        check(one)
        check(other)


def test_who_joins_a_unit_that_is_dropped_meanwhile_gets_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "CREATE QUERY {} AS SELECT item FROM bids [NOW] WHERE price > 9"
    with open_state(tmp_path / "state") as one, open_state(tmp_path / "state") as other:
        one.execute(STREAMS + text.format("first"))
        accept = one.catalog.accept_query

        def overtaken(*args: Any, **named: Any) -> QueryRow:
            monkeypatch.setattr(one.catalog, "accept_query", accept)
            other.execute("DROP QUERY first")
            return accept(*args, **named)

        monkeypatch.setattr(one.catalog, "accept_query", overtaken)
        one.execute(text.format("mine"))
        (unit,) = one.catalog.units()
        assert [query.name for query in one.catalog.subscribers(unit.id)] == ["mine"]
        check(one)


def test_several_who_submit_at_once(tmp_path: Path) -> None:
    """Every query is accepted, the operators cover them all, and what is equal has one unit."""
    path = tmp_path / "state"
    with open_state(path) as first:
        first.execute(STREAMS)

    def submit(who: int) -> None:
        rng = random.Random(who)
        with open_state(path) as headwater:
            for number in range(12):
                text = rng.choice(TEMPLATES).format(n=rng.randint(1, 3), m=rng.randint(1, 9))
                headwater.execute(f"CREATE QUERY q{who}_{number} AS {text}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(submit, range(4)))
    with open_state(path) as headwater:
        check(headwater)
        queries = headwater.catalog.queries()
        assert len(queries) == 48
        units: dict[str, set[str]] = {}
        for query in queries:
            units.setdefault(query.digest, set()).add(query.unit_id)
        assert all(len(found) == 1 for found in units.values())
        for query in queries:
            (statement,) = parse(query.definition, headwater.definitions.namespace)
            assert isinstance(statement, CreateQuery)
            form = signature_of(canonicalize(statement.query))
            if form.block is not None:
                operator = known(headwater).lattice.operator(query.unit_id)
                assert classify_containment(form, operator) in (
                    Containment.EQUAL,
                    Containment.CONTAINED,
                )


@pytest.mark.parametrize("work", [(scripts, "parse"), (unit_plans, "operator_from_definition")])
def test_no_transaction_is_open_during_long_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: tuple[ModuleType, str]
) -> None:
    """Reading a long text, or all units, takes longer than a database lets a transaction rest."""
    module, name = work
    with open_state(tmp_path / "state") as one, open_state(tmp_path / "state") as other:
        one.execute(STREAMS + "CREATE QUERY first AS SELECT item FROM bids [NOW]")
        done: Callable[..., Any] = getattr(module, name)
        written = []

        def writing(*args: Any) -> Any:
            other.catalog.set_option(f"o{len(written)}", "1")  # refused inside a snapshot
            written.append(name)
            return done(*args)

        monkeypatch.setattr(module, name, writing)
        other.execute("CREATE QUERY second AS SELECT item FROM bids [NOW] WHERE price > 3")
        assert written
