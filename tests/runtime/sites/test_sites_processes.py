"""A real deployment: three Spark processes, sixty queries, one process killed in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest

import three_sites

pytestmark = pytest.mark.spark


def test_three_sites_of_which_one_is_killed(tmp_path: Path) -> None:
    """Rows and links are checked within; and there was something to move and to send."""
    three_sites.sites(tmp_path, cpu=0.7)
    report = three_sites.deployed(tmp_path, count=60, size=20)
    assert report.queries == 60
    assert 3 <= report.units < 30
    assert report.moved and report.rows > 1000
    assert report.sent
    print(f"recovered in {report.recovered:.1f} s; {report.sent:,} bytes sent")
