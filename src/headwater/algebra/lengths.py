"""How long a text can become.

A function whose result would be longer than `MAX_TEXT` characters returns NULL: that is part of its
definition, in the reference evaluator as on Spark, so that no query can exhaust the memory that all
share. Where the length follows from constants alone, the query is refused when it is submitted.
"""

from __future__ import annotations

from headwater.algebra.expressions import Call, Expr, Literal
from headwater.algebra.types import STRING

MAX_TEXT = 1_000_000
"""The largest number of characters in a text that a function returns."""
_VALUE_LENGTH = 100  # enough for any number or time as text

_SHORTER = ("trim", "ltrim", "rtrim", "reverse", "translate", "substring", "left", "right")
_CHOICES = ("case", "coalesce", "greatest", "least", "nullif")


def exact_length(name: str, args: tuple[Expr, ...]) -> int | None:
    """The length of a text by its constants, or a lower bound of it if it is not NULL."""
    if name == "concat":
        lengths = [_exact_length_of(arg) for arg in args]
        return sum(length for length in lengths if length is not None)
    if name in ("lpad", "rpad"):
        return _count(args[1])
    if name == "repeat" and (times := _count(args[1])) is not None:
        length = _exact_length_of(args[0])
        return times * (1 if length is None else length)
    return None


def _exact_length_of(expr: Expr) -> int | None:
    if isinstance(expr, Literal):
        return len(expr.value) if isinstance(expr.value, str) else None
    return exact_length(expr.name, expr.args) if isinstance(expr, Call) else None


def _count(expr: Expr) -> int | None:
    if isinstance(expr, Literal) and isinstance(expr.value, int):
        return max(expr.value, 0)
    return None


def max_length(expr: Expr) -> int | None:
    """An upper bound of the length of a text by its constants; None if it depends on data."""
    if isinstance(expr, Literal):
        return len(str(expr.value))
    if expr.type != STRING:
        return _VALUE_LENGTH
    if not isinstance(expr, Call):
        return None
    inner = [max_length(arg) for arg in expr.args if arg.type == STRING]
    lengths = [length for length in inner if length is not None]
    complete = len(lengths) == len(inner)
    if expr.name == "cast":
        return _VALUE_LENGTH if expr.args[0].type != STRING else inner[0]
    if expr.name in ("lpad", "rpad"):
        return _count(expr.args[1])
    if expr.name == "date_format":
        # No letter of a format becomes more than ten: EEEE is at most Wednesday.
        return 10 * (inner[-1] or 0)
    if expr.name == "left" and (count := _count(expr.args[1])) is not None:
        return count
    if expr.name in _SHORTER or expr.name == "split_part":
        return inner[0]
    if expr.name in ("upper", "lower", "initcap"):
        # One character can become three in the other case.
        return None if inner[0] is None else 3 * inner[0]
    if expr.name == "concat":
        return sum(lengths) if complete else None
    if expr.name == "repeat" and complete and (times := _count(expr.args[1])) is not None:
        return lengths[0] * times
    return max(lengths) if complete and expr.name in _CHOICES else None
