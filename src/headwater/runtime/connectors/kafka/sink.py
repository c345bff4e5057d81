"""Results as messages of a Kafka topic: one for each row, under a key that stays the same.

A message may be sent again after a failure, under the same key.
"""

from __future__ import annotations

import pyarrow as pa

from headwater.runtime.connectors.kafka.client import (
    check_kafka_connector,
    check_reachable,
    client_settings,
    topic_id,
)
from headwater.runtime.connectors.options import KafkaSinkOptions
from headwater.runtime.connectors.sink_batch import SinkBatch, json_line


def send_messages(options: KafkaSinkOptions, batch: SinkBatch) -> None:
    """Send each row as a message, in order; returns when the brokers have them all."""
    if not batch.chunks:
        return
    spark = batch.spark
    check_kafka_connector(spark)
    settings = client_settings(options)
    check_reachable(options)
    if batch.again:
        topic_id(spark, options)  # fails faster than a producer that waits for a missing topic
    keys = [key for chunk in batch.chunks for key in chunk.row_ids()]
    values = [
        json_line(row, batch.columns) for chunk in batch.chunks for row in chunk.rows(batch.columns)
    ]
    table = pa.table({"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.string())})
    # One task sends all, as messages of several would arrive in any order.
    writer = spark.createDataFrame(table).coalesce(1).write.format("kafka")
    writer = writer.options(
        **{
            **{f"kafka.{name}": value for name, value in settings.items()},
            "topic": options.topic,
            # The commit that follows passes these rows, so every replica in sync has to have them.
            "kafka.acks": "all",
            # Short, as other sinks wait for a thread meanwhile; what was not acknowledged is sent
            # again.
            "kafka.max.block.ms": "5000",
            "kafka.request.timeout.ms": "5000",
            "kafka.delivery.timeout.ms": "10000",
        }
    )
    try:
        writer.save()
    except Exception:
        topic_id(spark, options)  # its error says more clearly what is missing
        raise
