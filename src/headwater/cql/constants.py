"""Constants and types as they are written: text to literal, and literal to text.

What `literal_text` writes is read back by the other functions as the same literal, type included.
"""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal

from headwater.algebra.expressions import Literal, literal
from headwater.algebra.times import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    format_date,
    from_micros,
    parse_date,
    parse_timestamp,
)
from headwater.algebra.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL,
    MAX_DECIMAL,
    NULL,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    Type,
    decimal,
)
from headwater.algebra.windows import UNITS
from headwater.cql.cursor import MAX_MICROSECONDS, UNIT_SIZES
from headwater.errors import AlgebraError, suggest

_NUMBER = re.compile(r"(\d+)(\.\d*)?(e[+-]?\d+)?([a-z]*)", re.I | re.A)
_SUFFIXES = {"L": BIGINT, "S": SMALLINT, "Y": TINYINT}
_INTEGER_SUFFIX = {INT: "", BIGINT: "L", SMALLINT: "S", TINYINT: "Y"}
_NOT_FINITE = {"nan": math.nan, "infinity": math.inf, "inf": math.inf}

TYPES = {
    "BOOLEAN": BOOLEAN,
    "TINYINT": TINYINT,
    "SMALLINT": SMALLINT,
    "INT": INT,
    "BIGINT": BIGINT,
    "FLOAT": FLOAT,
    "DOUBLE": DOUBLE,
    "STRING": STRING,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
}
_TYPE_SPELLINGS = {
    **TYPES,
    "BOOL": BOOLEAN,
    "BYTE": TINYINT,
    "SHORT": SMALLINT,
    "INTEGER": INT,
    "LONG": BIGINT,
    "REAL": FLOAT,
    "TEXT": STRING,
    "VARCHAR": STRING,
    "CHAR": STRING,
    "TIMESTAMP_LTZ": TIMESTAMP,
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")


def read_type(name: str, numbers: list[int]) -> Type:
    """The type of that name, DECIMAL with its precision and scale; raises AlgebraError."""
    spelling = name.upper()
    if spelling in _DECIMALS:
        if len(numbers) > 2:
            raise AlgebraError("DECIMAL takes a precision and a scale")
        return decimal(*([10, 0] if not numbers else [*numbers, 0][:2]))
    type_ = _TYPE_SPELLINGS.get(spelling)
    if type_ is None:
        raise AlgebraError(f"unknown type {name}; {suggest(name, [*TYPES, 'DECIMAL'])}")
    if numbers and not (spelling in ("VARCHAR", "CHAR") and len(numbers) == 1):
        raise AlgebraError(f"{spelling} takes no numbers in parentheses")
    return type_


def number_literal(written: str, negative: bool = False) -> Literal:
    """The constant with the type Spark SQL gives it: 5 INT or BIGINT, 5.5 DECIMAL, 5e0 and 5.5D
    DOUBLE, 5L BIGINT; raises AlgebraError if it is out of range or no number."""
    parts = _NUMBER.fullmatch(written)
    if parts is None or len(written) > 400:
        raise AlgebraError(f"{written[:40]} is not a number")
    whole, fraction, exponent, suffix = parts.groups(default="")
    suffix = suffix.upper()
    sign = "-" if negative else ""
    digits = written[: len(written) - len(suffix)]
    if suffix in ("D", "F") or (exponent and not suffix):
        return _floating(sign + digits, FLOAT if suffix == "F" else DOUBLE)
    if suffix == "BD" or (not suffix and fraction):
        return _decimal(sign + digits)
    if fraction or exponent or suffix not in ("", *_SUFFIXES):
        raise AlgebraError(f"{written[:40]} is not a number")
    if len(whole.lstrip("0")) > 19:
        if suffix:
            raise AlgebraError(f"{written[:60]} does not fit {_SUFFIXES[suffix]}")
        return _decimal(sign + digits)
    return _integer(int(sign + digits), suffix)


def _integer(value: int, suffix: str) -> Literal:
    if not suffix:
        # An integer beyond BIGINT is a DECIMAL, as in Spark.
        constant = literal(value)
        if not _fits(value, constant.type):
            return _decimal(str(value))
        return constant
    type_ = _SUFFIXES[suffix]
    if not _fits(value, type_):
        raise AlgebraError(f"{value} does not fit {type_}")
    return Literal(value, type_)


def _fits(value: int, type_: Type) -> bool:
    bounds = type_.bounds
    return bounds is not None and bounds[0] <= value <= bounds[1]


def _decimal(written: str) -> Literal:
    value = Decimal(written)
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    # Before int(value) below, which would write 1e999999999BD out.
    if abs(exponent) > MAX_DECIMAL or max(len(digits) + max(exponent, 0), -exponent) > MAX_DECIMAL:
        raise AlgebraError(f"a DECIMAL has at most {MAX_DECIMAL} digits")
    if exponent > 0:
        value = Decimal(int(value))
    # A zero has no sign.
    return literal(value if value else abs(value))


def _floating(written: str, type_: Type) -> Literal:
    value = float(written)
    if type_ == FLOAT and math.isfinite(value):
        try:
            # Python has no single precision; packing rounds to it.
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            value = math.inf
    if not math.isfinite(value):
        raise AlgebraError(f"{written[:40]} does not fit {type_}")
    return Literal(value, type_)


def non_finite_literal(written: str, type_: Type) -> Literal | None:
    """The constant of double('NaN') and the like; None if the text is not one of them."""
    name = written.strip().lower()
    value = _NOT_FINITE.get(name.lstrip("+-"))
    if value is None:
        return None
    return Literal(-value if name.startswith("-") else value, type_)


def timestamp_literal(written: str) -> Literal:
    return Literal(parse_timestamp(written), TIMESTAMP)


def date_literal(written: str) -> Literal:
    return Literal(parse_date(written), DATE)


def interval_literal(count: str, unit: str) -> Literal:
    """INTERVAL 'count' UNIT in microseconds; raises AlgebraError."""
    size = UNIT_SIZES.get(unit.upper())
    # An interval is a number of microseconds, and these have no fixed length.
    if unit.upper().rstrip("S") in ("YEAR", "MONTH", "QUARTER"):
        raise AlgebraError(f"an interval of {unit.upper()} has no fixed length; write it in DAYS")
    if size is None:
        raise AlgebraError(f"{unit} is not a unit of time; {suggest(unit, UNITS)}")
    if not re.fullmatch(r"\s*[+-]?\d{1,30}(\.\d{1,30})?\s*", count, re.A):
        raise AlgebraError(f"{count[:40]!r} is not a number of {unit.upper()}")
    length = Decimal(count.strip()) * size
    if length != length.to_integral_value():
        raise AlgebraError("this interval is not a whole number of microseconds")
    if abs(length) > MAX_MICROSECONDS:
        raise AlgebraError("this interval is too long")
    return Literal(int(length), INTERVAL)


# ---- literal to text


def quote(value: str) -> str:
    """A text in single quotes."""
    return "'" + re.sub(r"[\\'\n\r\t\0]", lambda m: _ESCAPES[m.group()], value) + "'"


_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


def literal_text(constant: Literal) -> str:
    """The constant in CQL; as a CAST if its type has no constants of its own."""
    value, type_ = constant.value, constant.type
    if value is None:
        return "NULL" if type_ == NULL else f"CAST(NULL AS {type_})"
    if type_ == BOOLEAN:
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return quote(value)
    if type_ == TIMESTAMP:
        return _timestamp_text(int(value))
    if type_ == DATE:
        return f"DATE '{format_date(int(value))}'"
    if type_ == INTERVAL:
        return _interval_text(int(value))
    if type_.is_floating:
        return _floating_text(float(value), type_)
    if type_.is_decimal:
        return _decimal_text(Decimal(value), type_)
    if type_ == BIGINT and literal(int(value)).type == BIGINT:
        return str(value)
    return f"{value}{_INTEGER_SUFFIX[type_]}"


def _timestamp_text(micros: int) -> str:
    # Arithmetic on constants can leave the years that a text can express.
    if not MIN_TIMESTAMP <= micros <= MAX_TIMESTAMP:
        return f"timestamp_micros({micros})"
    written = from_micros(micros).replace(tzinfo=None).isoformat(" ")
    return f"TIMESTAMP '{written.rstrip('0') if '.' in written else written}'"


def _interval_text(micros: int) -> str:
    unit, size = "SECOND", UNITS["SECOND"]
    if micros:
        unit, size = next((u, s) for u, s in reversed(UNITS.items()) if micros % s == 0)
    return f"INTERVAL '{micros // size}' {unit}"


def _floating_text(value: float, type_: Type) -> str:
    if not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return f"{type_.name.lower()}('{name}')"
    # repr is the shortest text that reads back as the same double.
    written = repr(value).replace("e+", "e")
    if type_ == FLOAT:
        return written + "F"
    return written if "e" in written else written + "D"


def _decimal_text(value: Decimal, type_: Type) -> str:
    written = format(value, "f")
    # The text alone implies precision and scale; any other needs a CAST.
    if literal(value).type != type_:
        return f"CAST({written} AS {type_})"
    return written if "." in written else written + "BD"
