"""The command line: `user-status emitter|load|processor|view|query`. Settings come from the environment."""

import sys
from typing import Final

from servicekit.process import options, serving
from servicekit.process.command_line import CommandLine
from servicekit.process.options import FailFast
from servicekit.process.runtime import Program, Runtime
from user_status import commands, topics
from user_status.settings import StatusSettings

ENVIRONMENT: Final = (
    "Settings: STREAMTABLE_BOOTSTRAP_SERVERS, STREAMTABLE_STATE_DIR, STREAMTABLE_HTTP_ADDRESS, "
    "STREAMTABLE_GRPC_ADDRESS, STREAMTABLE_METRICS_ADDRESS, STREAMTABLE_INSTANCE_ID, STREAMTABLE_LOG_LEVEL and the "
    "other variables of the library; USER_STATUS_GROUP, USER_STATUS_CLICKS_GROUP, USER_STATUS_CURSOR_SECRET, "
    "USER_STATUS_MAX_AHEAD_SECONDS, USER_STATUS_WAIT_SECONDS, USER_STATUS_DOCS, USER_STATUS_REFLECTION; SERVICEKIT_API_KEYS, SERVICEKIT_RATE_LIMIT "
    "and the other variables of the edge. Exit codes: 0 stopped in order, 1 failed, 2 wrong settings."
)
PROGRAM: Final = Program("user-status", StatusSettings, topics.UPDATES.name)

LINE: Final = CommandLine(
    PROGRAM,
    "Keeps what users say they are doing, joined with their clicks: four services and a load generator.",
    ENVIRONMENT,
)
app: Final = LINE.app


LINE.add(
    "emitter",
    "Take statuses by REST (PUT /users/{user}/status) on STREAMTABLE_HTTP_ADDRESS and write them to Kafka.",
    commands.serve_emitter,
)
LINE.add_load(
    "Write made-up statuses to Kafka and report the rate that was acknowledged.", commands.send_load
)


@app.command(epilog=ENVIRONMENT)
def processor(
    workers: options.Workers = 1, parent: options.Parent = None, *, fail_fast: FailFast = False
) -> None:
    """Keep the latest status of each user: from user-status-updates to the table user-status-table."""

    def work(runtime: Runtime[StatusSettings]) -> int:
        if workers > 1:
            command = ["user_status.main", "processor"]
            return serving.serve_workers(runtime.settings, command, workers)
        return serving.serve_group(runtime, commands.group_of(runtime), parent)

    sys.exit(PROGRAM.run(work, fail_fast=fail_fast))


LINE.add(
    "view", "Answer gRPC from a local copy of the table, on STREAMTABLE_GRPC_ADDRESS.", commands.serve_view
)
LINE.add(
    "query",
    "Answer REST from local copies of the tables of statuses and clicks, on STREAMTABLE_HTTP_ADDRESS.",
    commands.serve_query,
)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
