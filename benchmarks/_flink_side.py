"""Queries on Flink's local mini-cluster: run by `reuse_flink.py` in Flink's own environment.

Reads a task as JSON from standard input: settings, tables, and jobs, each a list of statements that
become one StatementSet. Prints, as JSON and for each job, the seconds that it ran by Flink's own clock,
and those in which it was planned and submitted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment


def run(tables: TableEnvironment, statements: Sequence[str]) -> dict[str, float]:
    job = tables.create_statement_set()
    for statement in statements:
        job.add_insert_sql(statement)
    begun = time.perf_counter()
    client = job.execute().get_job_client()
    submitted = time.perf_counter() - begun
    ran = client.get_job_execution_result().result().get_net_runtime()
    return {"seconds": ran / 1000, "submitted": submitted}


def main() -> None:
    task = json.load(sys.stdin)
    configuration = Configuration()
    for key, value in task["settings"].items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode()
    tables = TableEnvironment.create(settings.with_configuration(configuration).build())
    for statement in task["tables"]:
        tables.execute_sql(statement)
    print(json.dumps([run(tables, statements) for statements in task["jobs"]]))


if __name__ == "__main__":
    main()
