"""Recipe: a policy from outside of the package is chosen by name, ranks units, and can be SET."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError, ScheduleError
from headwater.runtime.api import open_state
from headwater.runtime.settings import Settings, effective_settings
from headwater.schedule import (
    POLICIES,
    Candidate,
    Policy,
    WorkEstimate,
    choose,
    find_policy,
    register_policy,
    unregister_policy,
)

LONGEST = Policy(
    "longest", "longest processing time", "nothing: for this test", "T", lambda work: work.ideal
)
SHORT = Candidate("short", 0.0, (WorkEstimate(selectivity=1.0, cost=1.0, ideal=1.0),))
LONG = Candidate("long", 0.0, (WorkEstimate(selectivity=1.0, cost=9.0, ideal=9.0),))


@pytest.fixture
def registered() -> Iterator[None]:
    register_policy(LONGEST)
    yield
    unregister_policy("longest")


def test_it_is_found_by_name_and_ranks(registered: None) -> None:
    choice = choose(find_policy("LONGEST"), [SHORT, LONG], 10.0)
    assert choice.why == "long ranks highest by T: 9, before short with 1"


def test_it_can_be_set(registered: None, tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as headwater:
        assert headwater.execute("SET SCHEDULER = 'longest'") == ["scheduler = longest"]
        settings = effective_settings(Settings(), headwater.catalog.options(), {})
        assert find_policy(settings.scheduler) is LONGEST


def test_without_it_the_others_are_listed(tmp_path: Path) -> None:
    with (
        open_state(tmp_path / "state") as headwater,
        pytest.raises(HeadwaterError, match="there is no policy 'longest'; there is: bsd, bsd-ea"),
    ):
        headwater.execute("SET SCHEDULER = 'longest'")
    with pytest.raises(ScheduleError, match="there is no policy 'longest'"):
        unregister_policy("longest")
    with pytest.raises(ScheduleError, match="there is a policy 'bsd' already"):
        register_policy(POLICIES["bsd"])


def test_the_guide_lists_every_policy() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "scheduling.md").read_text()
    table = re.search(r"^\| policy \|.*\n\|.*\n((?:\|.*\n)+)", guide, re.MULTILINE)
    assert table is not None
    assert re.findall(r"^\| `([^`]+)`", table[1], re.MULTILINE) == list(POLICIES)
