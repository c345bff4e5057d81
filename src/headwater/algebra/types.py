"""Column types and schemas.

Types are those of Spark SQL. In a tuple, a value is a plain Python value: bool, int, float,
Decimal, str, and for times an exact int: TIMESTAMP and INTERVAL in microseconds (since the epoch,
UTC), DATE in days. NULL is None.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from headwater.errors import AlgebraError, suggest

Value = bool | int | float | Decimal | str | None


@dataclass(frozen=True, slots=True)
class Type:
    """A Spark SQL type; precision and scale are used by DECIMAL alone."""

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})" if self.name == "DECIMAL" else self.name

    @property
    def is_integer(self) -> bool:
        return self.name in _INTEGER_BITS

    @property
    def is_floating(self) -> bool:
        return self.name in ("FLOAT", "DOUBLE")

    @property
    def is_decimal(self) -> bool:
        return self.name == "DECIMAL"

    @property
    def is_numeric(self) -> bool:
        return self.is_integer or self.is_floating or self.is_decimal

    @property
    def is_exact(self) -> bool:
        """Arithmetic on values of this type neither rounds nor produces NaN."""
        return self.is_integer or self.is_decimal or self.name in ("TIMESTAMP", "DATE", "INTERVAL")

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Least and largest value, for types that have them (BOOLEAN: 0 and 1)."""
        if self.name == "BOOLEAN":
            return (0, 1)
        bits = _INTEGER_BITS.get(self.name)
        return None if bits is None else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}

BOOLEAN = Type("BOOLEAN")
TINYINT = Type("TINYINT")
SMALLINT = Type("SMALLINT")
INT = Type("INT")
BIGINT = Type("BIGINT")
FLOAT = Type("FLOAT")
DOUBLE = Type("DOUBLE")
STRING = Type("STRING")
DATE = Type("DATE")
TIMESTAMP = Type("TIMESTAMP")
INTERVAL = Type("INTERVAL")
NULL = Type("NULL")

MAX_DECIMAL = 38


def decimal(precision: int, scale: int) -> Type:
    """DECIMAL(precision, scale); raises AlgebraError outside Spark's limits."""
    if not (1 <= precision <= MAX_DECIMAL and 0 <= scale <= precision):
        raise AlgebraError(
            f"DECIMAL({precision},{scale}): precision is 1 to {MAX_DECIMAL}, scale 0 to precision"
        )
    return Type("DECIMAL", precision, scale)


def parse_type(text: str) -> Type:
    """The type that a text names: the inverse of `str`."""
    name, _, digits = text.rstrip(")").partition("(")
    return Type(name, *map(int, digits.split(","))) if digits else Type(name)


def as_decimal(type_: Type) -> Type:
    """The decimal that holds every value of an integer type."""
    # Spark's widths; for BIGINT it has 20, though 19 digits are enough.
    digits = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 20}
    return type_ if type_.is_decimal else decimal(digits[type_.name], 0)


def bounded_decimal(precision: int, scale: int) -> Type:
    """Spark's rule for a result that may need more than 38 digits: keep the integral part, and
    at least 6 digits of the fraction."""
    if precision <= MAX_DECIMAL:
        return decimal(precision, min(scale, precision))
    integral = precision - scale
    return decimal(MAX_DECIMAL, max(MAX_DECIMAL - integral, min(scale, 6)))


def clipped_decimal(precision: int, scale: int) -> Type:
    """Spark's rule for sums, means and rounding: cut at 38 digits, and keep the scale."""
    return decimal(min(precision, MAX_DECIMAL), min(scale, MAX_DECIMAL))


def common_type(a: Type, b: Type) -> Type | None:
    """The type to which values of `a` and `b` are converted to be compared or combined, or None."""
    if a == b or b == NULL:
        return a
    if a == NULL:
        return b
    if a.is_numeric and b.is_numeric:
        if a.is_floating or b.is_floating:
            return DOUBLE
        if a.is_integer and b.is_integer:
            return a if _INTEGER_BITS[a.name] >= _INTEGER_BITS[b.name] else b
        x, y = as_decimal(a), as_decimal(b)
        integral = max(x.precision - x.scale, y.precision - y.scale)
        # Where both do not fit, digits of the fraction are lost rather than whole ones.
        scale = min(max(x.scale, y.scale), MAX_DECIMAL - integral)
        return decimal(integral + scale, scale)
    if {a.name, b.name} == {"DATE", "TIMESTAMP"}:
        return TIMESTAMP
    return None


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a schema."""

    name: str
    type: Type
    nullable: bool = True

    def __str__(self) -> str:
        return f"{self.name} {self.type}" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True)
class Schema:
    """The columns of a stream or table; names are unique whatever their case."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        if not self.fields:
            raise AlgebraError("a schema needs at least one column")
        if len(self._by_name) < len(self.fields):
            seen: set[str] = set()
            for field in self.fields:
                if field.name.lower() in seen:
                    raise AlgebraError(f"column {field.name} is declared twice")
                seen.add(field.name.lower())

    @cached_property
    def _by_name(self) -> dict[str, Field]:
        return {field.name.lower(): field for field in self.fields}

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    def get(self, name: str) -> Field | None:
        return self._by_name.get(name.lower())

    def __getitem__(self, name: str) -> Field:
        field = self.get(name)
        if field is None:
            raise AlgebraError(f"no column {name}; {suggest(name, self.names)}")
        return field
