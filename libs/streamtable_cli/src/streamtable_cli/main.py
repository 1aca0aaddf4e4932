"""The command `streamtable`: its groups of commands, their common flags, and its exit codes.

Other packages add groups of commands by entry points of the group `streamtable.commands`, each a Typer app.
"""

import sys
from importlib.metadata import entry_points, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from streamtable.errors import ConfigurationError, StreamtableError
from streamtable.observe import configure_logging
from streamtable_cli import deadletters, graphs, groups, tables, topics, users
from streamtable_cli.capacity import capacity
from streamtable_cli.compare import compare
from streamtable_cli.doctor import doctor
from streamtable_cli.drop import drop
from streamtable_cli.output import note
from streamtable_cli.reset import reset
from streamtable_cli.run import EXIT_CODES, run
from streamtable_cli.session import session_from
from streamtable_cli.skip import skip
from streamtable_cli.visit import visit


class Boundary(TyperGroup):
    """Ends the command with a message and an exit code for errors of the library, without a traceback."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except StreamtableError as error:
            for line in f"error: {error}".splitlines():
                note(line)
            sys.exit(2 if isinstance(error, ConfigurationError) else 1)


app = typer.Typer(
    cls=Boundary,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Exit codes: 0 done; 1 Kafka failed, or something does not exist; 2 wrong usage or settings, or refused; "
    "130 interrupted.",
)
app.add_typer(topics.app, name="topics")
app.add_typer(users.app, name="users")
app.add_typer(tables.app, name="table")
groups.app.command("compare")(compare)
groups.app.command("reset")(reset)
groups.app.command("skip")(skip)
groups.app.command("drop")(drop)
app.add_typer(groups.app, name="group")
app.add_typer(deadletters.app, name="dead-letters")
app.add_typer(graphs.app, name="graph")
app.command("run", epilog=EXIT_CODES)(run)
app.command("visit")(visit)
app.command("doctor")(doctor)
app.command("capacity")(capacity)
for _added in sorted(entry_points(group="streamtable.commands")):
    app.add_typer(_added.load(), name=_added.name)


def _version(given: bool) -> None:  # noqa: FBT001 - as typer calls it
    if given:
        typer.echo(f"streamtable {version('streamtable')}")
        raise typer.Exit


@app.callback()
def streamtable(
    ctx: typer.Context,
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Kafka: host:port, several separated by commas. Default: STREAMTABLE_BOOTSTRAP_SERVERS.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-X",
            metavar="NAME=VALUE",
            help="A librdkafka option, for example security.protocol=SSL; may be repeated. "
            "Default: STREAMTABLE_KAFKA_<NAME>.",
        ),
    ] = None,
    state_dir: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="The folder of tables on this machine. Default: STREAMTABLE_STATE_DIR."
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, max=600, help="Seconds to wait for each response of Kafka."),
    ] = 2.5,
    *,
    _show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Administer topics, tables, groups and dead letters of a Kafka cluster.

    Settings come from STREAMTABLE_... variables; flags override them.
    """
    configure_logging("console", "error", sys.stderr)
    ctx.obj = session_from(bootstrap_servers, option or [], state_dir, timeout)
