"""The command line: `click-count emitter|load|processor|view|query`. Settings come from the environment."""

import math
import sys
from enum import StrEnum
from typing import Annotated

import typer

from click_count import commands, processor
from click_count.load import Load
from click_count.runtime import run

ENVIRONMENT = (
    "Settings: STREAMTABLE_BOOTSTRAP_SERVERS, STREAMTABLE_STATE_DIR, STREAMTABLE_HTTP_ADDRESS, "
    "STREAMTABLE_GRPC_ADDRESS, STREAMTABLE_METRICS_ADDRESS, STREAMTABLE_INSTANCE_ID, STREAMTABLE_LOG_LEVEL and the "
    "other variables of the library; CLICK_COUNT_GROUP, CLICK_COUNT_CURSOR_SECRET, CLICK_COUNT_DOCS, "
    "CLICK_COUNT_REFLECTION. Exit codes: 0 stopped in order, 1 failed, 2 wrong settings."
)

app = typer.Typer(
    help="Counts clicks per user on Kafka: four services and a load generator.",
    epilog=ENVIRONMENT,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Handler(StrEnum):
    """How clicks are counted."""

    COUNT = "count"
    RECORD = "record"


def _finite(value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter("must be a finite number")
    return value


@app.command(epilog=ENVIRONMENT)
def emitter() -> None:
    """Take clicks by REST (POST /clicks) on STREAMTABLE_HTTP_ADDRESS and write them to Kafka."""
    sys.exit(run(commands.serve_emitter))


@app.command(epilog=ENVIRONMENT)
def load(
    rate: Annotated[
        float, typer.Option(min=0, callback=_finite, help="Clicks a second; 0: as fast as it goes.")
    ] = 1000.0,
    keys: Annotated[int, typer.Option(min=1, max=10_000_000, help="Number of users.")] = 1000,
    skew: Annotated[
        float,
        typer.Option(min=0, max=10, callback=_finite, help="Exponent of Zipf's law; 0: all users alike."),
    ] = 0.0,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many clicks.")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0, callback=_finite, help="Stop after so much time.")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Of the random choices: the same seed gives the same clicks.")
    ] = 1,
) -> None:
    """Write made-up clicks to Kafka and report the rate that was acknowledged."""
    wanted = Load(rate=rate, keys=keys, skew=skew, count=count, seconds=seconds, seed=seed)
    sys.exit(run(lambda runtime: commands.send_load(runtime, wanted)))


@app.command(name="processor", epilog=ENVIRONMENT)
def process(
    handler: Annotated[
        Handler, typer.Option(help="count: built in, in batches; record: called for each click.")
    ] = Handler.COUNT,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Processes to start; the partitions are spread over them.")
    ] = 1,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Count clicks: from user-clicks to the table click-count-table."""
    if workers == 1:
        make = processor.HANDLERS[handler.value]
        sys.exit(run(lambda runtime: processor.process(runtime, make(runtime.service.group), parent)))
    sys.exit(run(lambda runtime: processor.supervise(runtime.settings, handler.value, workers)))


@app.command(epilog=ENVIRONMENT)
def view() -> None:
    """Answer gRPC from a local copy of the table, on STREAMTABLE_GRPC_ADDRESS."""
    sys.exit(run(commands.serve_view))


@app.command(epilog=ENVIRONMENT)
def query() -> None:
    """Answer REST from a local copy of the table, on STREAMTABLE_HTTP_ADDRESS."""
    sys.exit(run(commands.serve_query))


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
