"""Times in records that Spark reads: columns of times are read as text, and turned into times here.

So the texts and numbers that are times are the same for all sources, and those of the reference
evaluator; Spark's own readers take some of the texts, and a number for seconds. A record with a text that
is no time is malformed, and it is said which column it was and what to do.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from headwater.algebra.times import (
    DATE_TEXT,
    LARGEST_TIMESTAMP,
    LEAST_TIMESTAMP,
    NUMBER_TEXT,
    TIMESTAMP_TEXT,
    TIMESTAMP_UNITS,
)
from headwater.algebra.types import DATE, TIMESTAMP, Schema, Type
from headwater.runtime.sources.base import MALFORMED, WHY
from headwater.runtime.sparksql import quoted, spark_type, text_sql

_TIMES = (TIMESTAMP, DATE)
_SHOWN = 60
"""So many characters of a text that is no time are shown."""


def read_type(type_: Type) -> str:
    """The Spark type by which a reader of texts takes a column."""
    return "STRING" if type_ in _TIMES else spark_type(type_)


def with_times(
    frame: DataFrame, schema: Schema, unit: str | None, blank_is_null: bool = False
) -> DataFrame:
    """The records with columns of times that were read as text as times, and `_why`.

    `unit` is what numbers that are times count, None if none is; an empty text may be NULL.
    """
    times = [field for field in schema if field.type in _TIMES]
    texts = {f.name: f"_text{n}" for n, f in enumerate(times)}
    found = {f.name: f"_time{n}" for n, f in enumerate(times)}
    is_text = {f.name: frame.schema[f.name].dataType.typeName() == "string" for f in times}
    others = [quoted(c) for c in frame.columns if c not in texts and c != MALFORMED]
    given = [
        f"{_unquoted(f.name, is_text[f.name], blank_is_null)} AS {texts[f.name]}" for f in times
    ]
    frame = frame.selectExpr(*others, MALFORMED, *given)
    values = [
        f"{_value(f.type, texts[f.name], is_text[f.name], unit)} AS {found[f.name]}" for f in times
    ]
    frame = frame.selectExpr("*", *values)
    wrong = [
        f"WHEN {texts[f.name]} IS NOT NULL AND {found[f.name]} IS NULL "
        f"THEN {_why(f.name, f.type, texts[f.name], unit)}"
        for f in times
    ]
    why = f"CASE WHEN {MALFORMED} IS NOT NULL THEN NULL {' '.join(wrong)} END"
    record = ", ".join(f"{texts.get(f.name, quoted(f.name))} AS {quoted(f.name)}" for f in schema)
    columns = [
        f"{found[f.name]} AS {quoted(f.name)}" if f.type in _TIMES else quoted(f.name)
        for f in schema
    ]
    names = {quoted(f.name) for f in schema}
    return frame.selectExpr("*", f"{why} AS {WHY}").selectExpr(
        *columns,
        *(other for other in others if other not in names),
        f"coalesce({MALFORMED}, CASE WHEN {WHY} IS NOT NULL "
        f"THEN to_json(struct({record})) END) AS {MALFORMED}",
        WHY,
    )


def _unquoted(name: str, is_text: bool, blank_is_null: bool) -> str:
    return f"nullif({quoted(name)}, '')" if is_text and blank_is_null else quoted(name)


def _value(type_: Type, text: str, is_text: bool, unit: str | None) -> str:
    """A text as a time, or a time as itself; NULL if it is none, or outside the years 1 to 9999."""
    word = f"trim(BOTH ' \\t\\r\\n' FROM {text})"
    if type_ == DATE:
        days = (
            f"CASE WHEN {_is(word, DATE_TEXT)} THEN try_cast({word} AS DATE) END"
            if is_text
            else f"CAST({text} AS DATE)"
        )
        return f"CASE WHEN year({days}) BETWEEN 1 AND 9999 THEN {days} END"
    micros = f"unix_micros(CAST({text} AS TIMESTAMP))"
    if is_text:
        number = "NULL" if unit is None else _from_number(word, unit)
        # Spark wants seconds where there is a zone.
        whole = f"regexp_replace({word}, '^(.{{16}})([Z+-].*)$', '$1:00$2')"
        micros = (
            f"CASE WHEN {_is(word, NUMBER_TEXT)} THEN {number} "
            f"WHEN {_is(word, TIMESTAMP_TEXT)} THEN unix_micros(try_cast({whole} AS TIMESTAMP)) END"
        )
    within = f"({micros}) BETWEEN {LEAST_TIMESTAMP}L AND {LARGEST_TIMESTAMP}L"
    return f"CASE WHEN {within} THEN timestamp_micros({micros}) END"


def _from_number(word: str, unit: str) -> str:
    number = f"try_cast({word} AS DECIMAL(29, 9))"
    if unit == "ns":
        return f"try_cast(floor({number} / 1000) AS BIGINT)"
    return f"try_cast(floor({number} * {TIMESTAMP_UNITS[unit]}) AS BIGINT)"


def _is(text: str, pattern: str) -> str:
    whole = f"^({pattern})\\z"
    return f"{text} RLIKE {text_sql(whole)}"


def _why(name: str, type_: Type, text: str, unit: str | None) -> str:
    shown = f"substring({text}, 1, {_SHOWN})"
    words = text_sql(f" is no {type_}, or outside the years 1 to 9999")
    if type_ == TIMESTAMP and unit is None:
        units = ", ".join(TIMESTAMP_UNITS)
        number = text_sql(f" is a number; declare timestamp_unit ({units}) with the source")
        words = f"if({_is(text, NUMBER_TEXT)}, {number}, {words})"
    return f"concat({text_sql(f'{name}: ')}, {shown}, {words})"
