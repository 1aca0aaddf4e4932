"""The command line: `click-count emitter|load|processor|view|query`. Settings come from the environment."""

import sys
from enum import StrEnum
from typing import Annotated, Final

import typer

from click_count import topics
from click_count.emitter import EMITTER
from click_count.instances import answering, instances, shards
from click_count.load import clicks
from click_count.query import QUERY
from click_count.settings import ClickSettings
from click_count.view import CONTRACT
from click_count.windows import CLOSED, NAME, click_windows
from servicekit.process import options
from servicekit.process.runtime import Program, Runtime
from servicekit.process.serving import serve_groups
from servicekit.process.table_service import TableService, Texts
from streamtable.errors import ConfigurationError

PROGRAM: Final = Program("click-count", ClickSettings, topics.USER_CLICKS.name)
SERVICE: Final = TableService(
    PROGRAM,
    module="click_count.main",
    texts=Texts(
        service="Counts clicks per user on Kafka: four services and a load generator.",
        emitter="Accept clicks over REST (POST /clicks) on STREAMTABLE_HTTP_ADDRESS and write them to Kafka.",
        load="Write generated clicks to Kafka and report the acknowledged rate.",
        processor="Count clicks: from user-clicks to the table click-count-table.",
    ),
    streams=[topics.USER_CLICKS],
    what="clicks",
    load=clicks,
    group=lambda settings: topics.by_count(settings.group),
    emitter=EMITTER,
    view=CONTRACT,
    query=QUERY,
    windows=lambda settings: {} if settings.windows is None else click_windows(settings.windows).tables,
    closed=lambda settings: {} if settings.windows is None else CLOSED,
    number=int,
    over={"instances": instances, "shards": shards},
    answering=answering,
)


class Handler(StrEnum):
    """The handler that counts the clicks: the built-in aggregate, or a function called for each record."""

    COUNT = "count"
    RECORD = "record"


_GROUPS: Final = {Handler.COUNT: topics.by_count, Handler.RECORD: topics.by_record}


def _processor(
    handler: Annotated[
        Handler, typer.Option(help="count: built-in, in batches; record: called for each click.")
    ] = Handler.COUNT,
    workers: options.Workers = 1,
    parent: options.Parent = None,
    *,
    fail_fast: options.FailFast = False,
) -> None:
    arguments = ["--handler", handler.value]
    process = SERVICE.process(lambda settings: _GROUPS[handler](settings.group), workers, parent, *arguments)

    def work(runtime: Runtime[ClickSettings]) -> int:
        if workers > 1 and runtime.service.query_address is not None:
            raise ConfigurationError(
                "processor --workers with CLICK_COUNT_QUERY_ADDRESS cannot run: all workers would answer at STREAMTABLE_GRPC_ADDRESS: "
                "start several processors instead, each with addresses and a STREAMTABLE_INSTANCE_ID of its own; nothing was started"
            )
        return process(runtime)

    sys.exit(PROGRAM.run(work, fail_fast=fail_fast))


def _serve_windows(runtime: Runtime[ClickSettings]) -> int:
    groups = click_windows(runtime.service.windows or NAME).flow.groups
    return serve_groups(runtime, groups, answering=answering)


def _serve_sinks(runtime: Runtime[ClickSettings]) -> int:
    from click_count.sinks import serve_sinks  # noqa: PLC0415 - Arrow and object stores are an extra

    return serve_sinks(runtime)


app: Final = SERVICE.command_line(
    _processor,
    {
        "windows": ("Count clicks by user and minute, and by URL and hour.", _serve_windows),
        "sinks": (
            "Write closed minutes as Parquet files to CLICK_COUNT_LAKE. Needs the extra lake.",
            _serve_sinks,
        ),
    },
)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
