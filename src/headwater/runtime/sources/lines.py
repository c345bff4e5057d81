"""Records that come as lines of text: JSON objects, or CSV in the order of the columns."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.algebra.types import Schema
from headwater.runtime.sources.base import MALFORMED
from headwater.runtime.sources.times import read_type, with_times
from headwater.runtime.sparksql import quoted


def parsed(lines: DataFrame, format: str, schema: Schema, unit: str | None) -> DataFrame:
    """The stream's columns, `_malformed` and `_why` in the place of the column `value`; others stay."""
    columns = ", ".join(f"{quoted(f.name)} {read_type(f.type)}" for f in schema)
    reader = {"json": F.from_json, "csv": F.from_csv}[format]
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED}
    record = reader("value", f"{columns}, {MALFORMED} STRING", options)
    others = [name for name in lines.columns if name != "value"]
    unread = F.col(f"_r.{MALFORMED}").isNotNull() | F.col("_r").isNull()
    text = F.when(unread, F.coalesce(F.col("value"), F.lit("(no value)")))
    names = [F.col(f"_r.{quoted(f.name)}") for f in schema]
    records = lines.select(record.alias("_r"), "value", *others).select(
        *names, *others, text.alias(MALFORMED)
    )
    return with_times(records, schema, unit, blank_is_null=format == "csv")
