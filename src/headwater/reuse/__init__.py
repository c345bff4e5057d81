"""What queries have in common, and how one operator serves them all.

A query is seen as a form: what has to agree for two queries to share an operator (its base), and
what may differ. An operator is the least relaxation of the forms it serves; what a query wants of
its rows is told by shapes: tables of constants that give every row the class of queries it is for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import exported

if TYPE_CHECKING:
    from headwater.reuse.form import Bound, Form, Kind, form_of, prefixes
    from headwater.reuse.lattice import Lattice
    from headwater.reuse.operator import Operator, Relation, operator_of, relation, relaxed

__all__ = [
    "Bound",
    "Form",
    "Kind",
    "Lattice",
    "Operator",
    "Relation",
    "form_of",
    "operator_of",
    "prefixes",
    "relation",
    "relaxed",
]

__getattr__ = exported(
    __name__,
    {
        "Bound": "headwater.reuse.form",
        "Form": "headwater.reuse.form",
        "Kind": "headwater.reuse.form",
        "form_of": "headwater.reuse.form",
        "prefixes": "headwater.reuse.form",
        "Lattice": "headwater.reuse.lattice",
        "Operator": "headwater.reuse.operator",
        "Relation": "headwater.reuse.operator",
        "operator_of": "headwater.reuse.operator",
        "relation": "headwater.reuse.operator",
        "relaxed": "headwater.reuse.operator",
    },
)
