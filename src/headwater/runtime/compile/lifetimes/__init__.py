"""Any query as relations with lifetimes: one rule for each kind of node.

`rows` says what a relation with lifetimes is. The rules are `scan`, `join`, `semi_join`, `outer_join`,
`distinct`, `aggregate` and `union`, with `matches`, `first_match` and `endless` for what some of them share; `output` says what
is emitted, `partition` which tuples have to be looked at for that, and `plan` puts a query together.
"""

from __future__ import annotations

from headwater.runtime.compile.lifetimes.plan import Lifetimes

__all__ = ["Lifetimes"]
