"""The command line: `tweet-reach emitter|load|processor|view|query`. Settings come from the environment."""

import sys
from typing import Annotated, Final

import typer

from servicekit.process import options
from servicekit.process.runtime import Program
from servicekit.process.table_service import TableService, Texts
from tweet_reach import commands, topics
from tweet_reach.commands import Stage
from tweet_reach.emitter import EMITTER
from tweet_reach.load import events
from tweet_reach.settings import ReachSettings
from tweet_reach.view import CONTRACT

PROGRAM: Final = Program("tweet-reach", ReachSettings, topics.TWEETS.name)
SERVICE: Final = TableService(
    PROGRAM,
    module=commands.MODULE,
    texts=Texts(
        service="Keeps how many distinct users a URL reaches by those who tweet it: four services and a load generator.",
        emitter="Accept tweets, deletions and followers over REST on STREAMTABLE_HTTP_ADDRESS and write them to Kafka.",
        load="Write generated tweets and followers to Kafka and report the acknowledged rate.",
        processor="Keep the reach of each URL: from tweets and twitter-followers to the table tweet-reach-table.\n\n"
        "Rows are in tables of the groups and in STREAMTABLE_STATE_DIR, or in the central store that STREAMTABLE_STORE "
        "names.",
    ),
    streams=[topics.TWEETS, topics.FOLLOWS],
    what="events",
    load=events,
    stream_of=lambda event: int("follower" in event),
    tables=lambda settings: {topics.TWEETS.name: topics.reaches(settings.group)},
    emitter=EMITTER,
    view=CONTRACT,
    query=commands.query_of,
    number=lambda row: row["reach"],
)


def _processor(
    stage: Annotated[
        Stage | None, typer.Option(help="Only this stage, in this process. Default: both, each in one.")
    ] = None,
    workers: options.Workers = 1,
    parent: options.Parent = None,
    *,
    fail_fast: options.FailFast = False,
) -> None:
    def work(runtime: commands.ReachRuntime) -> int:
        return commands.serve_stages(runtime, stage, workers, parent)

    sys.exit(PROGRAM.run(work, fail_fast=fail_fast))


app: Final = SERVICE.command_line(_processor, skew=1.0)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
