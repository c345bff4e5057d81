"""What queries cost: rates, sizes, CPU and network usage, as functions over frozen data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import exported

if TYPE_CHECKING:
    from headwater.cost.prices import (
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

__getattr__ = exported(
    __name__,
    {
        "CpuCosts": "headwater.cost.prices",
        "Flow": "headwater.cost.prices",
        "ONE_SITE": "headwater.cost.prices",
        "Prices": "headwater.cost.prices",
        "Work": "headwater.cost.prices",
        "join_cpu": "headwater.cost.prices",
        "lifetime_price": "headwater.cost.prices",
        "network_prices": "headwater.cost.prices",
        "network_usage": "headwater.cost.prices",
        "price": "headwater.cost.prices",
        "select_cpu": "headwater.cost.prices",
        "Input": "headwater.cost.rates",
        "StreamStatistics": "headwater.cost.rates",
        "Values": "headwater.cost.rates",
        "domain_share": "headwater.cost.rates",
        "grouped_rate": "headwater.cost.rates",
        "held": "headwater.cost.rates",
        "join_rate": "headwater.cost.rates",
        "selectivity": "headwater.cost.rates",
    },
)
