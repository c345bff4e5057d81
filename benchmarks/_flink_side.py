"""Queries on Flink's local mini-cluster: run by `reuse_flink.py` in Flink's own environment.

Reads a task as JSON from standard input (tables, queries, where to write) and prints, as JSON, the
seconds that the job ran, by Flink's own clock, and those in which it was planned and submitted.
"""

from __future__ import annotations

import json
import sys
import time

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment


def main() -> None:
    task = json.load(sys.stdin)
    configuration = Configuration()
    for key, value in task["settings"].items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode()
    tables = TableEnvironment.create(settings.with_configuration(configuration).build())
    for statement in task["tables"]:
        tables.execute_sql(statement)
    asked = tables.create_statement_set()
    for statement in task["queries"]:
        asked.add_insert_sql(statement)
    begun = time.perf_counter()
    client = asked.execute().get_job_client()
    submitted = time.perf_counter() - begun
    ran = client.get_job_execution_result().result().get_net_runtime() / 1000
    json.dump({"seconds": ran, "submitted": submitted}, sys.stdout)


if __name__ == "__main__":
    main()
