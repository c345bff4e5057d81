"""A plan as a picture (SVG): sites on a circle with what they run, and what flows between them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from html import escape

from headwater.plan.placement.loads import link_loads, site_loads
from headwater.plan.placement.model import PlacementPlan, PlacementProblem

WIDTH, LINE, MAX_LINES = 230, 15, 8


def render_svg(problem: PlacementProblem, plan: PlacementPlan) -> str:
    """The text of an SVG file."""
    count = max(1, len(problem.sites))
    radius = max(220.0, count * WIDTH / 5.0)
    size = 2 * (radius + WIDTH)
    at = [
        (
            size / 2 + radius * math.cos(2 * math.pi * position / count - math.pi / 2),
            size / 2 + radius * math.sin(2 * math.pi * position / count - math.pi / 2),
        )
        for position in range(count)
    ]
    shapes = [*_draw_links(problem, plan, at), *_draw_sites(problem, plan, at)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size:.0f} {size:.0f}" '
        'font-family="sans-serif" font-size="11">\n'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0 8 4 0 8z" fill="#456"/></marker></defs>\n'
        + "\n".join(shapes)
        + "\n</svg>\n"
    )


def _draw_sites(
    problem: PlacementProblem, plan: PlacementPlan, at: list[tuple[float, float]]
) -> Iterator[str]:
    lines: dict[int, list[str]] = defaultdict(list)
    for s, stream in enumerate(problem.streams):
        for site in stream.sites if any(s in o.inputs for o in problem.operators) else ():
            if len(stream.sites) == 1:
                lines[site].append(f"in: {stream.name}")
    for run in sorted(plan.runs):
        output = problem.operators[run.operator].output
        lines[run.site].append(f"makes {problem.streams[output].name}")
    for serve in sorted(plan.serves):
        names = [q.name for q in problem.queries if q.stream == serve.stream]
        lines[serve.site].append(f"serves {', '.join(names)}")
    for position, load in enumerate(site_loads(problem, plan)):
        shown = lines[position][:MAX_LINES]
        if len(lines[position]) > MAX_LINES:
            shown.append(f"and {len(lines[position]) - MAX_LINES} more")
        height = LINE * (len(shown) + 2) + 6
        x, y = at[position][0] - WIDTH / 2, at[position][1] - height / 2
        full = min(1.0, load.cpu.share)
        colour = "#c33" if full > 0.95 else "#4a8"
        yield (
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{height}" rx="5" '
            'fill="#fff" stroke="#456"/>'
            f'<rect x="{x:.0f}" y="{y + height - 6:.0f}" width="{WIDTH * full:.0f}" height="6" '
            f'fill="{colour}"/>'
            f'<text x="{x + 8:.0f}" y="{y + LINE:.0f}" font-weight="bold">{escape(load.site)}: '
            f"{load.cpu.share:.0%} of its CPU</text>"
        )
        for number, line in enumerate(shown):
            short = line if len(line) <= 38 else line[:37] + "…"
            yield f'<text x="{x + 8:.0f}" y="{y + LINE * (number + 2):.0f}">{escape(short)}</text>'


def _draw_links(
    problem: PlacementProblem, plan: PlacementPlan, at: list[tuple[float, float]]
) -> Iterator[str]:
    position_of = {site.name: number for number, site in enumerate(problem.sites)}
    for link in link_loads(problem, plan):
        (x, y), (u, v) = at[position_of[link.origin]], at[position_of[link.target]]
        long = math.hypot(u - x, v - y) or 1.0
        aside = (v - y) / long * 9, (x - u) / long * 9
        middle = (x + u) / 2 + aside[0] * 3, (y + v) / 2 + aside[1] * 3
        wide = 1 + 4 * min(1.0, link.bandwidth.share)
        end = min(0.5, WIDTH / 2 / long)
        yield (
            f'<line x1="{x + aside[0]:.0f}" y1="{y + aside[1]:.0f}" '
            f'x2="{u + aside[0] - (u - x) * end:.0f}" y2="{v + aside[1] - (v - y) * end:.0f}" '
            f'stroke="#456" stroke-width="{wide:.1f}" marker-end="url(#tip)"/>'
            f'<text x="{middle[0]:.0f}" y="{middle[1]:.0f}" fill="#456" text-anchor="middle">'
            f"{escape(', '.join(link.streams[:2]))}"
            f"{', ..' if len(link.streams) > 2 else ''}</text>"
        )
