"""The command `streamtable`."""

import sys

import typer

from streamtable.cli import topics
from streamtable.errors import ConfigurationError, StreamtableError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(topics.app, name="topics")


@app.callback()
def streamtable() -> None:
    """Look after topics, tables and groups. Settings come from STREAMTABLE_... variables."""


def main() -> None:
    """Exit codes: 0 done; 1 it could not be done now; 2 settings, arguments or topics have to be corrected."""
    try:
        app()
    except StreamtableError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)
