"""What queries cost: rates, sizes, CPU and network usage, as functions over frozen data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import lazy_exports

if TYPE_CHECKING:
    from headwater.cost.prices import (
        ONE_SITE,
        Flow,
        Prices,
        Work,
        lifetime_price,
        network_prices,
        network_usage,
        price,
    )
    from headwater.cost.rates import (
        ColumnStatistics,
        JoinInput,
        StreamStatistics,
        domain_share,
        grouped_rate,
        join_rate,
        selectivity,
        tuples_in_window,
    )

__all__ = [
    "ONE_SITE",
    "ColumnStatistics",
    "Flow",
    "JoinInput",
    "Prices",
    "StreamStatistics",
    "Work",
    "domain_share",
    "grouped_rate",
    "join_rate",
    "lifetime_price",
    "network_prices",
    "network_usage",
    "price",
    "selectivity",
    "tuples_in_window",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "Flow": "headwater.cost.prices",
        "ONE_SITE": "headwater.cost.prices",
        "Prices": "headwater.cost.prices",
        "Work": "headwater.cost.prices",
        "lifetime_price": "headwater.cost.prices",
        "network_prices": "headwater.cost.prices",
        "network_usage": "headwater.cost.prices",
        "price": "headwater.cost.prices",
        "JoinInput": "headwater.cost.rates",
        "StreamStatistics": "headwater.cost.rates",
        "ColumnStatistics": "headwater.cost.rates",
        "domain_share": "headwater.cost.rates",
        "grouped_rate": "headwater.cost.rates",
        "tuples_in_window": "headwater.cost.rates",
        "join_rate": "headwater.cost.rates",
        "selectivity": "headwater.cost.rates",
    },
)
