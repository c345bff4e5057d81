"""What came first is told to read what came later, if that saves work; and the plan is the same as if it
had come later."""

from __future__ import annotations

from test_planning import MANY_FEES, THREE, TWO, Site

from headwater.reuse.decide import SharingCosts, estimate_load
from headwater.reuse.operator import relax
from headwater.reuse.rewiring import plan_merging, plan_rewirings

BUSY = {name: 500 * rate for name, rate in MANY_FEES.items()}
OTHER = THREE.replace("fees [RANGE 5 SEC] f", "tax [RANGE 5 SEC] f").replace("f.fee", "f.tax")


def test_three_before_two_is_told_to_read_two() -> None:
    site, turned = Site(rates=MANY_FEES), Site(rates=MANY_FEES)
    site.submit("three", THREE)
    site.submit("two", TWO)
    (change,) = plan_rewirings(site.graph, site.graph["two"], SharingCosts(rates=MANY_FEES))
    assert (change.readers, change.reads) == (("three",), "two")
    turned.submit("two", TWO)
    assert turned.submit("three", THREE).reads is turned.graph["two"]
    assert turned.graph["two"].operator == change.operator
    assert (
        0
        < change.saves
        < estimate_load(site.graph["three"].operator, SharingCosts(rates=MANY_FEES))
    )


def test_it_is_not_if_two_would_have_to_join_much_more_for_it() -> None:
    site = Site(rates=MANY_FEES)
    site.submit("three", f"{THREE} AND b.item = 1")
    site.submit("two", f"{TWO} AND b.item = 2")
    assert plan_rewirings(site.graph, site.graph["two"], SharingCosts(rates=MANY_FEES)) == []


def test_two_joins_of_three_get_what_they_have_in_common() -> None:
    site = Site(rates=BUSY)
    site.submit("fees", THREE)
    site.submit("tax", OTHER)
    changes = plan_rewirings(site.graph, site.graph["tax"], SharingCosts(rates=BUSY))
    assert changes[0].reads is None and set(changes[0].readers) == {"fees", "tax"}
    assert changes[0].operator.sharing_key == Site().submit("two", TWO).choice.operator.sharing_key


def test_for_little_work_nothing_is_split_out() -> None:
    """A unit more is a step more."""
    site = Site(rates={name: rate / 100 for name, rate in MANY_FEES.items()})
    site.submit("fees", THREE)
    site.submit("tax", OTHER)
    assert plan_rewirings(site.graph, site.graph["tax"], SharingCosts(rates=site.rates)) == []


def test_what_reads_another_already_is_left_alone() -> None:
    site = Site(rates=MANY_FEES)
    site.submit("two", TWO)
    plan = site.submit("three", THREE)
    assert plan.part is not None
    assert relax(site.graph["two"].operator, plan.part.signature) is site.graph["two"].operator
    assert plan_rewirings(site.graph, site.graph["two"], SharingCosts(rates=MANY_FEES)) == []


NARROW = [f"{TWO} AND {bound}" for bound in ("b.price = 1", "a.cost = 2")]


def test_what_a_wide_query_makes_superfluous_is_merged_into_its_operator() -> None:
    costs = SharingCosts(rates=BUSY)
    site = Site(rates=BUSY)
    for name, text in zip(("one", "two"), NARROW, strict=True):
        assert site.submit(name, text).choice.name is None
    assert plan_merging(site.graph, site.graph["one"], costs) is None
    wide = site.submit("wide", TWO)
    kept = site.graph[wide.choice.name or "wide"]
    change = plan_merging(site.graph, kept, costs)
    assert change is not None and change.into == kept.name and change.merged != kept.name
    assert change.operator.where == kept.operator.where
    before = [site.graph[name].operator for name in (change.merged, change.into)]
    loads = [estimate_load(operator, costs) for operator in (*before, change.operator)]
    assert change.saves == loads[0] + loads[1] - loads[2] > 0
