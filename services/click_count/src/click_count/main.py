"""The command line: `click-count emitter|load|processor|view|query`. Settings come from the environment."""

import sys
from enum import StrEnum
from typing import Annotated, Final

import typer

from click_count import commands, topics
from click_count.settings import ClickSettings
from servicekit.process import options, serving
from servicekit.process.command_line import CommandLine
from servicekit.process.options import FailFast
from servicekit.process.runtime import Program, Runtime

ENVIRONMENT: Final = (
    "Settings: STREAMTABLE_BOOTSTRAP_SERVERS, STREAMTABLE_STATE_DIR, STREAMTABLE_HTTP_ADDRESS, "
    "STREAMTABLE_GRPC_ADDRESS, STREAMTABLE_METRICS_ADDRESS, STREAMTABLE_INSTANCE_ID, STREAMTABLE_LOG_LEVEL and the "
    "other variables of the library; CLICK_COUNT_GROUP, CLICK_COUNT_CURSOR_SECRET, "
    "CLICK_COUNT_MAX_AHEAD_SECONDS, CLICK_COUNT_WAIT_SECONDS, CLICK_COUNT_DOCS, CLICK_COUNT_REFLECTION; SERVICEKIT_API_KEYS, SERVICEKIT_RATE_LIMIT "
    "and the other variables of the edge. Exit codes: 0 stopped in order, 1 failed, 2 wrong settings."
)
PROGRAM: Final = Program("click-count", ClickSettings, topics.USER_CLICKS.name)

LINE: Final = CommandLine(
    PROGRAM, "Counts clicks per user on Kafka: four services and a load generator.", ENVIRONMENT
)
app: Final = LINE.app


class Handler(StrEnum):
    """How clicks are counted."""

    COUNT = "count"
    RECORD = "record"


_GROUPS: Final = {Handler.COUNT: topics.by_count, Handler.RECORD: topics.by_record}


LINE.add(
    "emitter",
    "Take clicks by REST (POST /clicks) on STREAMTABLE_HTTP_ADDRESS and write them to Kafka.",
    commands.serve_emitter,
)
LINE.add_load("Write made-up clicks to Kafka and report the rate that was acknowledged.", commands.send_load)


@app.command(epilog=ENVIRONMENT)
def processor(
    handler: Annotated[
        Handler, typer.Option(help="count: built in, in batches; record: called for each click.")
    ] = Handler.COUNT,
    workers: options.Workers = 1,
    parent: options.Parent = None,
    *,
    fail_fast: FailFast = False,
) -> None:
    """Count clicks: from user-clicks to the table click-count-table."""

    def work(runtime: Runtime[ClickSettings]) -> int:
        if workers > 1:
            command = ["click_count.main", "processor", "--handler", handler.value]
            return serving.serve_workers(runtime.settings, command, workers)
        return serving.serve_group(runtime, _GROUPS[handler](runtime.service.group), parent)

    sys.exit(PROGRAM.run(work, fail_fast=fail_fast))


LINE.add(
    "view", "Answer gRPC from a local copy of the table, on STREAMTABLE_GRPC_ADDRESS.", commands.serve_view
)
LINE.add(
    "query", "Answer REST from a local copy of the table, on STREAMTABLE_HTTP_ADDRESS.", commands.serve_query
)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
