"""What enters or leaves a relation of which the states at instants are known."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.algebra.nodes import Output


def changes_sql(output: Output, states: str, names: Sequence[str], after: int) -> str:
    """SQL of what enters or leaves between instants: `_tau`, c0, c1, ..

    `states` selects `_t`, the next instant `_next` at which the row may have changed (or NULL), and the
    columns `names`, by which rows are compared.
    """
    sign = 1 if output is Output.ISTREAM else -1
    listed = ", ".join(names)
    shown = ", ".join(f"{name} AS c{i}" for i, name in enumerate(names))
    return (
        f"WITH states AS ({states}),\n"
        f"changes AS (\n"
        f"  SELECT _t, {listed}, {sign} AS w FROM states WHERE _t > {after}L\n"
        f"  UNION ALL\n"
        f"  SELECT _next, {listed}, {-sign} AS w FROM states WHERE _next IS NOT NULL),\n"
        # A row that is there before and after counts +1 and -1: it has not changed.
        f"emitted AS (SELECT _t, {listed}, sum(w) AS n FROM changes\n"
        f"  GROUP BY _t, {listed} HAVING sum(w) > 0)\n"
        f"SELECT _t AS _tau, {shown} FROM emitted LATERAL VIEW explode(sequence(1L, n)) copies AS _n"
    )
