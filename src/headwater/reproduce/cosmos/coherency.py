"""Section 4.1: which updates a provider forwards, and how long its children are out of tolerance then.

Delays are zero, so that every moment out of tolerance is the rule's own.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from headwater.errors import InputError
from headwater.federation.dissemination.coherency import (
    Floats,
    Reading,
    UpdateTagger,
    ValueHistory,
    effective_requirements,
    fidelity,
    forwarded_updates,
    forwarding_bound,
    printed_bound,
)
from headwater.reproduce.figure import (
    Cell,
    Claim,
    FigureSettings,
    Report,
    ReportTable,
    format_spread,
)

CHAINS = ((0.05, 0.06), (0.03, 0.05, 0.08), (0.02, 0.10))
RULES: dict[str, Callable[[float, float, bool], float]] = {
    "> cr": printed_bound,
    "> cr - cr of parent": forwarding_bound,
}
TAGS = "tags of the source"
TICKS = "ticks"


def load_ticks(path: Path) -> ValueHistory:
    """The trades of a day: a zip with one CSV file of milliseconds and ten-thousandths of a dollar."""
    try:
        with zipfile.ZipFile(path) as archive:
            text = archive.read(archive.namelist()[0])
        rows = np.loadtxt(io.BytesIO(text), delimiter=",", usecols=(0, 1), ndmin=2)
    except (OSError, ValueError, zipfile.BadZipFile, IndexError) as error:
        raise InputError(f"{path} is no zip of trades: {error}") from None
    # Of trades in the same millisecond the last is the price.
    last = np.append(np.diff(rows[:, 0]) > 0, True)
    return ValueHistory(rows[last, 0] / 1000, rows[last, 1] / 10_000)


def random_walk(random: np.random.Generator, steps: int) -> ValueHistory:
    """A price that changes every second by about a cent."""
    values = 100 + np.cumsum(random.normal(0.0, 0.01, steps))
    return ValueHistory(np.arange(steps, dtype=np.float64), values)


def random_parents(random: np.random.Generator, providers: int) -> dict[int, int | None]:
    """A tree in which each provider is below a random earlier one."""
    parents: dict[int, int | None] = {0: None}
    for provider in range(1, providers):
        parents[provider] = int(random.integers(provider))
    return parents


def tree_histories(
    source: ValueHistory,
    parents: Mapping[int, int | None],
    effective: Mapping[int, float],
    bound: Callable[[float, float, bool], float],
) -> dict[int, ValueHistory]:
    """What every provider of a tree gets, without any delay."""
    histories: dict[int, ValueHistory] = {}
    for provider, parent in parents.items():
        if parent is None:
            histories[provider] = source
            continue
        above = histories[parent]
        slack = bound(effective[provider], effective[parent], False)
        chosen = forwarded_updates(above.values, slack)
        histories[provider] = ValueHistory(above.times[chosen], above.values[chosen])
    return histories


def forwarding(settings: FigureSettings) -> Report:
    """Chains on random walks, and random trees on walks and real trades."""
    steps = 20_000 if settings.quick else 200_000
    tables, claims = [], []
    for table, claim in (_chains(settings, steps), _trees(settings, steps)):
        tables.append(table)
        claims += claim
    return Report(tuple(tables), tuple(claims))


def _chains(settings: FigureSettings, steps: int) -> tuple[ReportTable, list[Claim]]:
    """The last provider of a chain: share of time out of tolerance, and messages it gets."""
    rows: list[tuple[Cell, ...]] = []
    claims = []
    for chain in CHAINS:
        out: dict[str, list[float]] = {rule: [] for rule in (*RULES, TAGS)}
        sent: dict[str, list[int]] = {rule: [] for rule in (*RULES, TAGS)}
        for seed in range(1, settings.seeds + 1):
            source = random_walk(np.random.default_rng(seed), steps)
            for rule, last in _last_histories(source, chain).items():
                out[rule].append(100 * (1 - fidelity(source, last, chain[-1], float(steps))))
                sent[rule].append(len(last.times))
        printed, safe = RULES
        name = ", ".join(f"{one:g}" for one in chain)
        for rule in out:
            more = [a / b for a, b in zip(sent[rule], sent[printed], strict=True)]
            rows.append((name, rule, format_spread(out[rule], 2, " %"), format_spread(more, 2)))
        claims.append(
            Claim(
                f"chain {name}: nobody out of tolerance by the rule > cr",
                "(implied)",
                format_spread(out[printed], 2, " %"),
                max(out[printed]) == 0,
            )
        )
        claims.append(
            Claim(
                f"chain {name}: nobody out of tolerance by > cr - cr of parent, and by tags",
                "(ours)",
                f"{max(out[safe]):g} % and {max(out[TAGS]):g} %",
                max(out[safe]) == max(out[TAGS]) == 0,
            )
        )
    columns = ("requirements", "forwarded if", "last one out of tolerance", "messages, > cr is 1")
    title = f"Chains without delay, random walk of {steps:,} steps"
    return ReportTable(title, columns, tuple(rows)), claims


def _last_histories(source: ValueHistory, chain: tuple[float, ...]) -> dict[str, ValueHistory]:
    parents: dict[int, int | None] = {0: None}
    parents.update({number: number - 1 for number in range(1, len(chain) + 1)})
    effective = effective_requirements(parents, dict(enumerate(chain, start=1)))
    histories = {
        rule: tree_histories(source, parents, effective, bound)[len(chain)]
        for rule, bound in RULES.items()
    }
    tags = _update_tags(source, chain)
    chosen = tags >= chain[-1]
    return {**histories, TAGS: ValueHistory(source.times[chosen], source.values[chosen])}


def _update_tags(source: ValueHistory, requirements: tuple[float, ...]) -> Floats:
    """The tag of every update; -1 for those that are sent to no provider."""
    tagger = UpdateTagger(requirements)
    pairs = zip(source.times.tolist(), source.values.tolist(), strict=True)
    tags = [tagger.tag(Reading(number, *pair)) for number, pair in enumerate(pairs)]
    return np.array([-1.0 if tag is None else tag for tag in tags])


def _trees(settings: FigureSettings, steps: int) -> tuple[ReportTable, list[Claim]]:
    """Random trees of 50 providers with requirements of one to ten cents."""
    sources: dict[str, ValueHistory | None] = {"random walk": None}
    sources |= {path.name: load_ticks(path) for path in _tick_files(settings)}
    rows: list[tuple[Cell, ...]] = []
    worst: dict[str, float] = dict.fromkeys(RULES, 0.0)
    for name, trades in sources.items():
        for rule, bound in RULES.items():
            shares, sent = [], []
            for seed in range(1, settings.seeds + 1):
                # Once for each rule, so that all meet the same walk and the same tree.
                random = np.random.default_rng(seed)
                source = random_walk(random, steps) if trades is None else trades
                parents = random_parents(random, 50)
                requirements = {one: float(random.uniform(0.01, 0.1)) for one in list(parents)[1:]}
                effective = effective_requirements(parents, requirements)
                histories = tree_histories(source, parents, effective, bound)
                # A second more, so that the last value counts as well.
                end = float(source.times[-1]) + 1
                shares += [
                    100 * (1 - fidelity(source, histories[one], cr, end))
                    for one, cr in requirements.items()
                ]
                sent.append(sum(len(histories[one].times) for one in requirements))
            worst[rule] = max(worst[rule], *shares)
            mean = sum(shares) / len(shares)
            rows.append(
                (name, rule, f"{mean:.2f} %", f"{max(shares):.2f} %", round(sum(sent) / len(sent)))
            )
    printed, safe = RULES
    claims = [
        Claim(
            "random trees: nobody out of tolerance by the rule > cr",
            "(implied)",
            f"worst {worst[printed]:.2f} %",
            worst[printed] == 0,
        ),
        Claim(
            "random trees: nobody out of tolerance by > cr - cr of parent",
            "(ours)",
            f"worst {worst[safe]:g} %",
            worst[safe] == 0,
        ),
    ]
    columns = ("source", "forwarded if", "out of tolerance, mean", "worst provider", "messages")
    return ReportTable("Random trees of 50 without delay", columns, tuple(rows)), claims


def _tick_files(settings: FigureSettings) -> list[Path]:
    """The real trades, where there are any: with --data or HEADWATER_DATA."""
    return [] if settings.data is None else sorted((settings.data / TICKS).glob("*.zip"))
