"""The command line: one command. Settings come from the environment."""

import sys
from typing import Final

import typer

from console import commands
from console.settings import ConsoleSettings
from servicekit.process.options import FailFast
from servicekit.process.runtime import Program

ENVIRONMENT: Final = (
    "Settings: STREAMTABLE_BOOTSTRAP_SERVERS, STREAMTABLE_STATE_DIR, STREAMTABLE_HTTP_ADDRESS and the other variables of "
    "the library; CONSOLE_ACTIONS, CONSOLE_TOKEN, CONSOLE_URL; SERVICEKIT_STATUS_TOPIC (default streamtable-status), SERVICEKIT_RUNS_TOPIC (default "
    "streamtable-runs), SERVICEKIT_API_KEYS and the other variables of the edge. Exit codes: 0 stopped in order, 1 failed, 2 wrong settings."
)
PROGRAM: Final = Program("console", ConsoleSettings, commands.STATUS_TOPIC)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(epilog=ENVIRONMENT)
def serve(*, fail_fast: FailFast = False) -> None:
    """Show all processes, their graph, tables, dead letters and topics on STREAMTABLE_HTTP_ADDRESS."""
    sys.exit(PROGRAM.run(commands.serve, fail_fast=fail_fast))


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
