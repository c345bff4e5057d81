"""How long texts become: bounds hold for what the reference evaluator makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.algebra.expressions import Column, Expr, Literal
from headwater.algebra.functions import call, cast
from headwater.algebra.lengths import MAX_TEXT, longest
from headwater.algebra.types import INT, STRING
from headwater.errors import AlgebraError
from headwater.reference.scalar import compile_expr

A, N = Column("", "a", STRING), Column("", "n", INT)


def text(value: str) -> Literal:
    return Literal(value, STRING)


def number(value: int) -> Literal:
    return Literal(value, INT)


def texts(depth: int) -> st.SearchStrategy[Expr]:
    """Texts made of constants and the number n."""
    if depth == 0:
        return st.one_of(st.text("aß", max_size=3).map(text), st.just(cast(N, STRING)))
    inner, counts = texts(depth - 1), st.integers(-1, 4).map(number)
    return st.one_of(
        st.builds(lambda a, b: call("concat", a, b), inner, inner),
        st.builds(lambda a, n: call("repeat", a, n), inner, counts),
        st.builds(lambda a, n, p: call("lpad", a, n, p), inner, counts, inner),
        st.builds(lambda a: call("upper", a), inner),
        st.builds(lambda a, n: call("left", a, n), inner, counts),
        st.builds(lambda a, b: call("coalesce", a, b), inner, inner),
        st.builds(lambda a, b: call("case", call("=", N, number(1)), a, b), inner, inner),
        inner,
    )


@given(texts(3), st.integers(-5, 5))
def test_no_text_is_longer_than_its_bound(expr: Expr, n: int) -> None:
    bound = longest(expr)
    assert bound is not None
    assert len(str(compile_expr(expr, [N])((n,)))) <= max(bound, len("None"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: call("repeat", A, number(MAX_TEXT + 1)),
        lambda: call("repeat", text("ab"), number(MAX_TEXT // 2 + 1)),
        lambda: call("lpad", A, number(MAX_TEXT + 1), text("x")),
        lambda: call("rpad", A, number(400_000_000), text("")),
        lambda: call("concat", A, call("lpad", A, number(MAX_TEXT), text("x")), text("y")),
        lambda: call("repeat", call("repeat", text("x"), number(1_000)), number(1_001)),
    ],
)
def test_what_is_known_to_be_too_long_is_refused(make: object) -> None:
    with pytest.raises(AlgebraError, match="a text has at most 1,000,000"):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    "expr, just, beyond",
    [
        (call("repeat", A, number(1_000)), "x" * 1_000, "x" * 1_001),
        (call("concat", A, A), "x" * (MAX_TEXT // 2), "x" * (MAX_TEXT // 2 + 1)),
        (
            call("replace", A, text("x"), text("yy")),
            "x" * (MAX_TEXT // 2),
            "x" * (MAX_TEXT // 2 + 1),
        ),
    ],
)
def test_what_the_data_makes_too_long_is_null(expr: Expr, just: str, beyond: str) -> None:
    function = compile_expr(expr, [A])
    assert len(str(function((just,)))) == MAX_TEXT
    assert function((beyond,)) is None


def test_the_length_of_padding_may_come_with_the_data() -> None:
    function = compile_expr(call("lpad", A, N, text("x")), [A, N])
    assert function(("a", MAX_TEXT + 1)) is None
    assert len(str(function(("a", MAX_TEXT)))) == MAX_TEXT
