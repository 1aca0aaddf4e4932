"""`streamtable sink compact`: merge the small files of a sink.

The command line loads this as its entry point `sink` in the group `streamtable.commands`.
"""

import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from streamtable.observe import progress_on
from streamtable_cli.output import AsJson, show_json, show_table

app = typer.Typer(no_args_is_help=True, help="What sinks have written.")


@app.callback()
def sink() -> None:
    """Keep `compact` a command of its own: typer makes a group with a single command that command."""


@app.command("compact")
def compact_command(
    where: Annotated[str, typer.Argument(help="The folder or URL that the sink writes Parquet files to.")],
    sink: Annotated[str | None, typer.Option(help="Only the files of this sink.")] = None,
    small_mib: Annotated[int, typer.Option(min=1, help="Merge files that are smaller, in MiB.")] = 16,
    target_mib: Annotated[
        int, typer.Option(min=1, help="Merge to files of at most this size, in MiB.")
    ] = 256,
    keep_hours: Annotated[
        float, typer.Option(min=0, help="Keep merged files for so long: readers may have listed them.")
    ] = 24.0,
    *,
    as_json: AsJson = False,
) -> None:
    """Merge the small Parquet files of a sink. It may run at any time, beside the sink and its readers."""
    # Each start of the command line loads this module, also where Arrow and obstore are not installed.
    from streamtable_sinks.parquet.compaction import MIB, CompactionLimits, compact  # noqa: PLC0415

    limits = CompactionLimits(small_mib * MIB, target_mib * MIB, timedelta(hours=keep_hours))
    progress = progress_on(sys.stderr)
    try:
        found = list(compact(where, datetime.now(UTC), sink=sink, limits=limits, progress=progress))
    finally:
        progress.close()
    columns = ("sink", "topic", "partition", "merged", "into", "deleted")
    rows = [(*each.place[:2], each.place.partition, each.merged, each.into, each.deleted) for each in found]
    if as_json:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        show_table(columns, rows)
