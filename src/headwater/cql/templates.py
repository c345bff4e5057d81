"""One parse for all queries that differ only in constants.

The shape of a text is the text without its constants. When a shape occurs again, it is parsed with
stand-ins in place of the constants; if putting the real constants back gives exactly the query that
parsing the text gives, later texts of the shape are only filled in. A shape for which it does not
(a constant that is a position, a length or a time) is always parsed in full.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from headwater.algebra.catalog import Namespace
from headwater.algebra.expressions import Call, Column, Expr, Literal
from headwater.algebra.functions import AggregateCall
from headwater.algebra.nodes import (
    Aggregate,
    Distinct,
    Item,
    Join,
    OuterJoin,
    Project,
    Query,
    Relation,
    Scan,
    Select,
    SemiJoin,
    TableScan,
    UnionAll,
)
from headwater.algebra.types import INT, STRING
from headwater.errors import CqlError

MAX_SHAPES = 2_000

# `same` stays part of the shape: names, windows, and constants whose text is read as a time. A text
# with `never` is not understood by a pattern as simple as this one (comments, escapes).
_PARTS = re.compile(
    r"""(?P<same>`[^`]*` | \[[^\]]*\] | (?:INTERVAL|DATE|TIMESTAMP)\s*(?:'[^']*'|[\d.]+))
      | (?P<text>'[^'\\]*'(?!'))
      | (?P<number>(?<![\w.])\d{1,9}(?![\w.]))
      | (?P<never>['"\\\0]|--|/\*)""",
    re.VERBOSE | re.IGNORECASE,
)

Constants = tuple[Literal, ...]


@dataclass(frozen=True)
class _Template:
    """A query with stand-ins for constants."""

    query: Query
    stand_ins: Constants

    def fill(self, constants: Constants) -> Query:
        values: dict[Literal, Literal] = {}
        for stand_in, constant in zip(self.stand_ins, constants, strict=True):
            values[stand_in] = constant
            # -5 is one constant to the parser, so a stand-in may appear with its sign changed.
            if isinstance(stand_in.value, int) and isinstance(constant.value, int):
                values[Literal(-stand_in.value, INT)] = Literal(-constant.value, INT)
        return Query(self.query.output, _fill_relation(self.query.root, values))


class _Shapes:
    """The templates of one namespace, with the oldest dropped beyond MAX_SHAPES."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.templates: OrderedDict[str, _Template | None] = OrderedDict()

    def store(self, shape: str, template: _Template | None) -> None:
        self.templates[shape] = template
        if len(self.templates) > MAX_SHAPES:
            self.templates.popitem(last=False)


_shapes: WeakKeyDictionary[Namespace, _Shapes] = WeakKeyDictionary()
# Most shapes occur once: parsing a template pays only from the second time on.
_SEEN_ONCE = _Template.__new__(_Template)


def parse_with_template(text: str, names: Namespace, read: Callable[[str], Query]) -> Query:
    """The result of `read` for a text, from the template of its shape if there is one."""
    extracted = _extract_constants(text)
    if extracted is None:
        return read(text)
    shape, constants = extracted
    if len(set(constants)) < len(constants):
        # Equal constants can make equal expressions, which are merged; different ones would not be.
        return read(text)
    shapes = _shapes.get(names)
    # A declaration changes what a text means.
    if shapes is None or shapes.version != names.version:
        shapes = _shapes[names] = _Shapes(names.version)
    # None says that the shape has no template, so the default is something else.
    template = shapes.templates.get(shape, shape)
    if template is shape:
        query = read(text)
        shapes.store(shape, _SEEN_ONCE)
        return query
    if template is _SEEN_ONCE:
        query = read(text)
        shapes.store(shape, _build_template(shape, constants, query, read))
        return query
    if isinstance(template, _Template):
        return template.fill(constants)
    return read(text)


def _extract_constants(text: str) -> tuple[str, Constants] | None:
    """The shape of a text and its constants; None if it has no constants, or cannot be analysed."""
    constants: list[Literal] = []
    pieces: list[str] = []
    at = 0
    for match in _PARTS.finditer(text):
        kind = match.lastgroup
        if kind == "same":
            continue
        if kind == "never":
            return None
        pieces.append(text[at : match.start()])
        at = match.end()
        written = match.group()
        if kind == "text":
            pieces.append("\0text\0")
            constants.append(Literal(written[1:-1], STRING))
        else:
            pieces.append("\0number\0")
            constants.append(Literal(int(written), INT))
    if not constants:
        return None
    return "".join([*pieces, text[at:]]), tuple(constants)


def _build_template(
    shape: str, constants: Constants, query: Query, read: Callable[[str], Query]
) -> _Template | None:
    """The template of a shape, verified on one text; None if it does not reproduce the query."""
    # Unlikely as constants of the shape itself, and all different, so that each is found again.
    stand_ins = tuple(
        Literal(f"~{n}~", STRING) if constant.type == STRING else Literal(2_000_000_000 + n, INT)
        for n, constant in enumerate(constants)
    )
    text = shape
    for stand_in in stand_ins:
        if stand_in.type == STRING:
            text = text.replace("\0text\0", f"'{stand_in.value}'", 1)
        else:
            text = text.replace("\0number\0", str(stand_in.value), 1)
    try:
        template = _Template(read(text), stand_ins)
    except CqlError:
        return None
    return template if template.fill(constants) == query else None


# ---- putting constants in


def _fill_expr(expr: Expr, values: dict[Literal, Literal]) -> Expr:
    if isinstance(expr, Literal):
        return values.get(expr, expr)
    if isinstance(expr, Column) or not expr.args:
        return expr
    args = tuple(_fill_expr(arg, values) for arg in expr.args)
    same = all(new is old for new, old in zip(args, expr.args, strict=True))
    return expr if same else Call(expr.name, args, expr.type)


def _fill_optional(expr: Expr | None, values: dict[Literal, Literal]) -> Expr | None:
    return None if expr is None else _fill_expr(expr, values)


def _fill_aggregate(call: AggregateCall, values: dict[Literal, Literal]) -> AggregateCall:
    arg, condition = _fill_optional(call.arg, values), _fill_optional(call.filter, values)
    same = arg is call.arg and condition is call.filter
    return call if same else replace(call, arg=arg, filter=condition)


def _fill_relation(node: Relation, values: dict[Literal, Literal]) -> Relation:
    """The relation with constants in place of stand-ins; parts without any are not copied."""
    if isinstance(node, Scan | TableScan):
        return node
    below = tuple(_fill_relation(part, values) for part in node.inputs)
    same = all(new is old for new, old in zip(below, node.inputs, strict=True))
    match node:
        case Select():
            condition = _fill_expr(node.condition, values)
            return node if same and condition is node.condition else Select(below[0], condition)
        case Project():
            items = tuple(
                item if (e := _fill_expr(item.expr, values)) is item.expr else Item(item.name, e)
                for item in node.items
            )
            return node if same and items == node.items else Project(below[0], items, node.alias)
        case Join():
            on = _fill_optional(node.condition, values)
            return node if same and on is node.condition else Join(below, on)
        case OuterJoin():
            on_ = _fill_expr(node.condition, values)
            return OuterJoin(below[0], below[1], on_, node.full)
        case SemiJoin():
            return SemiJoin(below[0], below[1], _fill_optional(node.condition, values), node.anti)
        case Aggregate():
            keys = tuple(_fill_expr(key, values) for key in node.keys)
            calls = tuple(_fill_aggregate(call, values) for call in node.calls)
            return Aggregate(below[0], keys, calls, node.alias)
        case Distinct():
            return Distinct(below[0])
        case UnionAll():
            return UnionAll(below, node.alias)
