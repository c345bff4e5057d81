"""What queries cost: rates, sizes, CPU and network usage, as functions over frozen data."""

from __future__ import annotations

from headwater.cost.price import (
    ONE_SITE,
    CpuCosts,
    Flow,
    Prices,
    Work,
    join_cpu,
    lifetime_price,
    network_prices,
    network_usage,
    price,
    select_cpu,
)
from headwater.cost.rates import (
    Input,
    StreamStatistics,
    Values,
    domain_share,
    grouped_rate,
    held,
    join_rate,
    selectivity,
)

__all__ = [
    "ONE_SITE",
    "CpuCosts",
    "Flow",
    "Input",
    "Prices",
    "StreamStatistics",
    "Values",
    "Work",
    "domain_share",
    "grouped_rate",
    "held",
    "join_cpu",
    "join_rate",
    "lifetime_price",
    "network_prices",
    "network_usage",
    "price",
    "select_cpu",
    "selectivity",
]
