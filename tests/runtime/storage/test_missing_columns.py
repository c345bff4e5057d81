"""Files of another version: a column that they lack is an error, not NULL."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import HeadwaterError
from headwater.runtime.storage.segment_files import check_columns


def test_a_column_that_files_lack_is_named(tmp_path: Path) -> None:
    one, folder = tmp_path / "one.parquet", tmp_path / "parts.parquet"
    folder.mkdir()
    pq.write_table(pa.table({"a": [1], "b": [2]}), one)
    pq.write_table(pa.table({"a": [1]}), folder / "part-0.parquet")
    check_columns([str(one)], ["a", "b"], "panes")
    check_columns([str(one), str(folder)], ["a"], "panes")
    with pytest.raises(HeadwaterError, match="panes have no b: another version"):
        check_columns([str(one), str(folder)], ["a", "b"], "panes")
