"""How long texts become: bounds hold for what the reference evaluator makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.algebra.expressions import Column, Expr, Literal
from headwater.algebra.functions import build_call, cast
from headwater.algebra.lengths import MAX_TEXT, max_length
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
        st.builds(lambda a, b: build_call("concat", a, b), inner, inner),
        st.builds(lambda a, n: build_call("repeat", a, n), inner, counts),
        st.builds(lambda a, n, p: build_call("lpad", a, n, p), inner, counts, inner),
        st.builds(lambda a: build_call("upper", a), inner),
        st.builds(lambda a, n: build_call("left", a, n), inner, counts),
        st.builds(lambda a, b: build_call("coalesce", a, b), inner, inner),
        st.builds(
            lambda a, b: build_call("case", build_call("=", N, number(1)), a, b), inner, inner
        ),
        inner,
    )


@given(texts(3), st.integers(-5, 5))
def test_no_text_is_longer_than_its_bound(expr: Expr, n: int) -> None:
    bound = max_length(expr)
    assert bound is not None
    assert len(str(compile_expr(expr, [N])((n,)))) <= max(bound, len("None"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: build_call("repeat", A, number(MAX_TEXT + 1)),
        lambda: build_call("repeat", text("ab"), number(MAX_TEXT // 2 + 1)),
        lambda: build_call("lpad", A, number(MAX_TEXT + 1), text("x")),
        lambda: build_call("rpad", A, number(400_000_000), text("")),
        lambda: build_call(
            "concat", A, build_call("lpad", A, number(MAX_TEXT), text("x")), text("y")
        ),
        lambda: build_call("repeat", build_call("repeat", text("x"), number(1_000)), number(1_001)),
    ],
)
def test_what_is_known_to_be_too_long_is_refused(make: object) -> None:
    with pytest.raises(AlgebraError, match="a text has at most 1,000,000"):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    "expr, just, beyond",
    [
        (build_call("repeat", A, number(1_000)), "x" * 1_000, "x" * 1_001),
        (build_call("concat", A, A), "x" * (MAX_TEXT // 2), "x" * (MAX_TEXT // 2 + 1)),
        (
            build_call("replace", A, text("x"), text("yy")),
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
    function = compile_expr(build_call("lpad", A, N, text("x")), [A, N])
    assert function(("a", MAX_TEXT + 1)) is None
    assert len(str(function(("a", MAX_TEXT)))) == MAX_TEXT
