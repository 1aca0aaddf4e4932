"""The command line: `user-status emitter|load|processor|view|query`. Settings come from the environment."""

import sys
from typing import Final

import typer

from servicekit import options, serving
from servicekit.load import Load
from servicekit.options import FailFast
from servicekit.runtime import Program, Runtime
from user_status import commands, topics
from user_status.settings import StatusSettings

ENVIRONMENT: Final = (
    "Settings: STREAMTABLE_BOOTSTRAP_SERVERS, STREAMTABLE_STATE_DIR, STREAMTABLE_HTTP_ADDRESS, "
    "STREAMTABLE_GRPC_ADDRESS, STREAMTABLE_METRICS_ADDRESS, STREAMTABLE_INSTANCE_ID, STREAMTABLE_LOG_LEVEL and the "
    "other variables of the library; USER_STATUS_GROUP, USER_STATUS_CLICKS_GROUP, USER_STATUS_CURSOR_SECRET, "
    "USER_STATUS_WAIT_SECONDS, USER_STATUS_DOCS, USER_STATUS_REFLECTION; SERVICEKIT_API_KEYS, SERVICEKIT_RATE_LIMIT "
    "and the other variables of the edge. Exit codes: 0 stopped in order, 1 failed, 2 wrong settings."
)
PROGRAM: Final = Program("user-status", StatusSettings, topics.UPDATES.name)

app = typer.Typer(
    help="Keeps what users say they are doing, joined with their clicks: four services and a load generator.",
    epilog=ENVIRONMENT,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command(epilog=ENVIRONMENT)
def emitter(*, fail_fast: FailFast = False) -> None:
    """Take statuses by REST (PUT /users/{user}/status) on STREAMTABLE_HTTP_ADDRESS and write them to Kafka."""
    sys.exit(PROGRAM.run(commands.serve_emitter, fail_fast=fail_fast))


@app.command(epilog=ENVIRONMENT)
def load(
    rate: options.Rate = 1000.0,
    keys: options.Keys = 1000,
    skew: options.Skew = 0.0,
    count: options.Count = None,
    seconds: options.Seconds = None,
    seed: options.Seed = 1,
    *,
    fail_fast: FailFast = False,
) -> None:
    """Write made-up statuses to Kafka and report the rate that was acknowledged."""
    wanted = Load(rate=rate, keys=keys, skew=skew, count=count, seconds=seconds, seed=seed)
    sys.exit(PROGRAM.run(lambda runtime: commands.send_load(runtime, wanted), fail_fast=fail_fast))


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


@app.command(epilog=ENVIRONMENT)
def view(*, fail_fast: FailFast = False) -> None:
    """Answer gRPC from a local copy of the table, on STREAMTABLE_GRPC_ADDRESS."""
    sys.exit(PROGRAM.run(commands.serve_view, fail_fast=fail_fast))


@app.command(epilog=ENVIRONMENT)
def query(*, fail_fast: FailFast = False) -> None:
    """Answer REST from local copies of the tables of statuses and clicks, on STREAMTABLE_HTTP_ADDRESS."""
    sys.exit(PROGRAM.run(commands.serve_query, fail_fast=fail_fast))


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
