"""Which query runs next: policies that choose among what is pending by what has been measured.

`choose` is the whole interface: a policy, what is waiting, the time, and how long anything may be
passed over. It returns the choice with its reasons as plain data. The package knows neither Spark
nor the simulator; both ask it.
"""

from __future__ import annotations

from headwater.schedule.choice import Choice, Ranked, choose, next_of
from headwater.schedule.measured import Measured, along, joined
from headwater.schedule.policies import POLICIES, Policy, Waiting, policy_named
from headwater.schedule.sharing import SHARING, Sharing

__all__ = [
    "POLICIES",
    "SHARING",
    "Choice",
    "Measured",
    "Policy",
    "Ranked",
    "Sharing",
    "Waiting",
    "along",
    "choose",
    "joined",
    "next_of",
    "policy_named",
]
