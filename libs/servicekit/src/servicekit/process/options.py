"""Command-line options that the commands of services share."""

import math
import time
from typing import Annotated

import typer


def _finite(value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter("must be a finite number")
    return value


FailFast = Annotated[
    bool,
    typer.Option("--fail-fast", help="Stop if Kafka does not answer within 3 s, instead of waiting for it."),
]
Workers = Annotated[
    int, typer.Option(min=1, max=64, help="Processes to start; the partitions are spread over them.")
]
Parent = Annotated[int | None, typer.Option(hidden=True)]
Rate = Annotated[
    float, typer.Option(min=0, callback=_finite, help="Records per second; 0: as fast as possible.")
]
Keys = Annotated[int, typer.Option(min=1, max=10_000_000, help="Number of users.")]
Skew = Annotated[
    float, typer.Option(min=0, max=10, callback=_finite, help="Exponent of Zipf's law; 0: uniform.")
]
Count = Annotated[int | None, typer.Option(min=1, help="Stop after this many records.")]
Seconds = Annotated[float | None, typer.Option(min=0, callback=_finite, help="Stop after this many seconds.")]
Seed = Annotated[
    int,
    typer.Option(
        default_factory=time.time_ns,
        show_default="a new one",
        help="Seed of the random choices: the same seed gives the same records, which count once in 24 hours.",
    ),
]
Over = Annotated[
    str | None, typer.Option(help="Ask these for rows, in place of a whole copy: instances, shards.")
]
