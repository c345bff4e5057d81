"""What the paper does not show: the claims on other arrivals, and our own policy on new seeds."""

from __future__ import annotations

from headwater.errors import SimulationError
from headwater.reproduce.figure import Claim, FigureSettings, Report, ReportTable, format_spread
from headwater.reproduce.scheduling.loads import (
    ALL_POLICIES,
    l2_norm,
    maximum_slowdown,
    response_time,
    slowdown,
)
from headwater.reproduce.scheduling.runs import (
    HIGHEST,
    BySeed,
    claim_lower,
    format_mean,
    on_off_arrivals,
    percent_below,
    run_policies,
    seed_range,
)
from headwater.sim.arrivals import Arrivals, OnOff, RequestTrace
from headwater.sim.metrics import confidence_interval

TRACE = "traces/epa-http-19950830-morning.txt"
HELD_OUT = 1000
"""Seeds up to this one may have been used for tuning."""


def trace(settings: FigureSettings) -> Report:
    """Twelve hours of requests to a web server. The seed only draws the queries: the arrivals are given."""
    if settings.data is None:
        raise SimulationError(f"this needs {TRACE}; name its folder with --data or HEADWATER_DATA")
    arrivals = RequestTrace(settings.data / TRACE, 500 if settings.quick else None)
    return _claims_report("a trace of web requests", arrivals, settings)


def bursts(settings: FigureSettings) -> Report:
    """Bursts ten times as fast as the processor, with long pauses."""
    tuples = 100 if settings.quick else 1000
    # On average as dense as the arrivals of the other figures.
    return _claims_report("saturated bursts", OnOff(tuples, on=10, off=90, spacing=0.1), settings)


def _claims_report(title: str, arrivals: Arrivals, settings: FigureSettings) -> Report:
    """All policies at the highest load, and the paper's claims about it."""
    runs = run_policies(title, ALL_POLICIES, arrivals, [HIGHEST], seed_range(settings))
    measured = {
        "response": response_time,
        "slowdown": slowdown,
        "maximum": maximum_slowdown,
        "l2 norm": l2_norm,
    }
    rows = tuple(
        (
            policy,
            *(format_mean([m(one) for one in runs[policy, HIGHEST]]) for m in measured.values()),
        )
        for policy in ALL_POLICIES
    )
    sizes = (
        ("hnr", "rr", "slowdown", 75),
        ("hnr", "srpt", "slowdown", 53),
        ("hnr", "hr", "slowdown", 20),
        ("lsf", "hnr", "maximum", 80),
        ("bsd", "hnr", "maximum", 44),
        ("bsd", "lsf", "slowdown", 80),
        ("bsd", "lsf", "l2 norm", 57),
        ("bsd", "hnr", "l2 norm", 24),
    )
    claims = tuple(
        claim_lower(
            f"{title}: {metric} of {one.upper()} against {other.upper()}",
            size,
            percent_below(runs[one, HIGHEST], runs[other, HIGHEST], measured[metric]),
        )
        for one, other, metric, size in sizes
    )
    return Report(
        (ReportTable(f"{title}, load {HIGHEST}", ("policy", *measured), rows),),
        (_response_claim(title, runs), *claims),
    )


def _response_claim(title: str, runs: BySeed) -> Claim:
    more = [-v for v in percent_below(runs["hnr", HIGHEST], runs["hr", HIGHEST], response_time)]
    shown = format_spread(more, 1, " %")
    return Claim(f"{title}: response of HNR against HR", "+4 .. +7 %", shown, min(more) > 0)


def head_start(settings: FigureSettings) -> Report:
    """BSD with a head start against BSD."""
    # Seeds that tuning never saw: otherwise the head start would be judged on what it was fitted
    # to.
    seeds = range(HELD_OUT + 1, HELD_OUT + 1 + settings.seeds)
    arrivals = on_off_arrivals(settings)
    loads = (0.8, HIGHEST)
    runs = run_policies("head start", ("bsd", "bsd-early"), arrivals, loads, seeds)
    rows, claims = [], []
    for load in loads:
        pair = runs["bsd-early", load], runs["bsd", load]
        for name, metric in (
            ("slowdown", slowdown),
            ("l2 norm", l2_norm),
            ("maximum", maximum_slowdown),
        ):
            change = [-value for value in percent_below(*pair, metric)]
            estimate = confidence_interval(change)
            margin = f" ±{estimate.margin:.3f}" if len(change) > 1 else ""
            rows.append((load, name, f"{estimate.mean:+.3f} %{margin}"))
            if name == "slowdown":
                claims.append(
                    Claim(
                        f"average slowdown of BSD-EARLY at {load} against BSD: lower",
                        "(ours)",
                        format_spread(change, 2, " %"),
                        max(change) < 0,
                    )
                )
            if name == "l2 norm":
                claims.append(
                    Claim(
                        f"l2 norm of BSD-EARLY at {load} against BSD: within 0.5 %",
                        "(ours)",
                        format_spread(change, 3, " %"),
                        max(change) < 0.5,
                    )
                )
    return Report(
        (
            ReportTable(
                "BSD with a head start against BSD", ("load", "metric", "change"), tuple(rows)
            ),
        ),
        tuple(claims),
    )
