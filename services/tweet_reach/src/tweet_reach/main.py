"""The command line: `tweet-reach emitter|load|processor|view|query`. Settings come from the environment."""

import sys
from typing import Annotated, Final

import typer

from servicekit.process import options
from servicekit.process.command_line import CommandLine
from servicekit.process.options import FailFast
from servicekit.process.runtime import Program
from tweet_reach import commands, topics
from tweet_reach.commands import Stage
from tweet_reach.settings import ReachSettings

ENVIRONMENT: Final = (
    "Settings: STREAMTABLE_BOOTSTRAP_SERVERS, STREAMTABLE_STORE, STREAMTABLE_STATE_DIR, STREAMTABLE_HTTP_ADDRESS, "
    "STREAMTABLE_GRPC_ADDRESS, STREAMTABLE_METRICS_ADDRESS, STREAMTABLE_INSTANCE_ID, STREAMTABLE_LOG_LEVEL and the "
    "other variables of the library; TWEET_REACH_GROUP, TWEET_REACH_BATCH_SECONDS, TWEET_REACH_MAX_AHEAD_SECONDS, TWEET_REACH_DOCS, "
    "TWEET_REACH_REFLECTION; SERVICEKIT_API_KEYS, SERVICEKIT_RATE_LIMIT and the other variables of the edge. Exit "
    "codes: 0 stopped in order, 1 failed, 2 wrong settings."
)
PROGRAM: Final = Program("tweet-reach", ReachSettings, topics.TWEETS.name)

LINE: Final = CommandLine(
    PROGRAM,
    "How many distinct users a URL reaches by those who tweet it: four services and a load generator.",
    ENVIRONMENT,
)
app: Final = LINE.app


LINE.add(
    "emitter",
    "Take tweets, deletions and followers by REST on STREAMTABLE_HTTP_ADDRESS and write them to Kafka.",
    commands.serve_emitter,
)
LINE.add_load(
    "Write made-up tweets and followers to Kafka and report the rate that was acknowledged.",
    commands.send_load,
    skew=1.0,
)


@app.command(epilog=ENVIRONMENT)
def processor(
    stage: Annotated[
        Stage | None, typer.Option(help="Only this stage, in this process. Default: both, each in one.")
    ] = None,
    workers: options.Workers = 1,
    parent: options.Parent = None,
    *,
    fail_fast: FailFast = False,
) -> None:
    """Keep the reach of each URL: from tweets and twitter-followers to the table tweet-reach-table.

    Rows are in tables of the groups and in STREAMTABLE_STATE_DIR, or in the central store that STREAMTABLE_STORE names.
    """
    sys.exit(
        PROGRAM.run(
            lambda runtime: commands.serve_stages(runtime, stage, workers, parent), fail_fast=fail_fast
        )
    )


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
