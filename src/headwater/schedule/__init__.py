"""Which query runs next: policies that choose among what is pending by what has been measured.

`choose` is the whole interface: a policy, what is waiting, the time, and how long anything may be
passed over. It returns the choice with its reasons as plain data. The package depends neither on Spark
nor on the simulator; both call it.
"""

from __future__ import annotations

from headwater.schedule.choice import Choice, RankedCandidate, choose, next_candidate
from headwater.schedule.estimates import WorkEstimate, estimate_chain, estimate_join
from headwater.schedule.policies import (
    POLICIES,
    Candidate,
    Policy,
    find_policy,
    register_policy,
    unregister_policy,
)
from headwater.schedule.sharing import SHARING_RULES, SharingRule

__all__ = [
    "POLICIES",
    "SHARING_RULES",
    "Candidate",
    "Choice",
    "Policy",
    "RankedCandidate",
    "SharingRule",
    "WorkEstimate",
    "choose",
    "estimate_chain",
    "estimate_join",
    "find_policy",
    "next_candidate",
    "register_policy",
    "unregister_policy",
]
