"""Options: what SET and flags change, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import HeadwaterError
from headwater.runtime.api import open_state
from headwater.runtime.settings import SETTING_NAMES, Settings, effective_settings, parse_setting


@pytest.mark.parametrize("name", SETTING_NAMES)
def test_every_limit_can_be_set(tmp_path: Path, name: str) -> None:
    with open_state(tmp_path) as headwater:
        known: dict[str, object] = {
            "scheduler": "hnr",
            "optimise": "greedy",
            "planner": "regions",
            "sharing": "none",
        }
        known |= {"late_share": 0.5, "reject_share": 0.5}
        value = known.get(name) or type(getattr(Settings(), name))(7)
        assert headwater.execute(f"SET {name} = '{value}'") == [f"{name} = {value}"]
        limits = effective_settings(Settings(), headwater.catalog.options(), {})
        assert getattr(limits, name) == value
        assert [n for n in SETTING_NAMES if getattr(limits, n) != getattr(Settings(), n)] == [name]
        headwater.execute(f"SET {name} = NULL")
        assert effective_settings(Settings(), headwater.catalog.options(), {}) == Settings()


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SET rows_per_stpe = 5", "there is no setting rows_per_stpe; did you mean rows_per_step?"),
        ("SET spark.sql.ansi.enabled = TRUE", "there is no setting spark.sql.ansi.enabled"),
        ("SET retries = 'many'", "retries must be a whole number >= 0, not many"),
        ("SET retries = 1.5", "retries must be a whole number >= 0, not 1.5"),
        ("SET at_once = 2", "at_once is now called max_concurrency"),
        ("SET max_concurrency = 0", "max_concurrency must be a whole number >= 1, not 0"),
        ("SET max_backlog_rows = TRUE", "max_backlog_rows must be a whole number >= 1, not True"),
        ("SET interval = 0", "interval must be a number of seconds >= 0.01, not 0"),
        ("SET backoff = 'inf'", "backoff must be a number of seconds >= 0.0, not inf"),
        ("SET scheduler = 'bsdd'", "there is no policy 'bsdd'; did you mean bsd?"),
        ("SET scheduler = 5", "there is no policy '5'; there is: bsd, bsd-early, fcfs"),
        ("SET backoff = 'nan'", "backoff must be a number of seconds >= 0.0, not nan"),
    ],
)
def test_what_cannot_be_set_is_refused(tmp_path: Path, statement: str, said: str) -> None:
    with open_state(tmp_path) as headwater:
        with pytest.raises(HeadwaterError) as refused:
            headwater.execute(f"SET retries = 1; {statement}")
        assert said in str(refused.value)
        assert headwater.catalog.options() == {}


def test_a_flag_comes_before_what_was_set_and_that_before_the_base() -> None:
    base = Settings(retries=1, backoff=0.5, max_concurrency=2)
    limits = effective_settings(base, {"retries": "2", "backoff": "0.25"}, {"retries": 3})
    assert (limits.retries, limits.backoff, limits.max_concurrency) == (3, 0.25, 2)


def test_what_another_release_has_set_is_left_alone() -> None:
    assert effective_settings(Settings(), {"something_else": "1"}, {}) == Settings()


def test_a_value_is_kept_as_it_is() -> None:
    assert parse_setting("interval", "0.25") == 0.25
    assert parse_setting("retries", 0) == 0
