"""The command line: a command for each role, and those around them. Settings come from the environment."""

import sys
from typing import Annotated, Final

import typer

from messaging import commands, groups
from messaging.settings import MessagingSettings
from servicekit.process import options, serving
from servicekit.process.load import LoadOptions
from servicekit.process.options import FailFast
from servicekit.process.runtime import Program, Runtime
from servicekit.tables.user_ids import user_id

PROGRAM: Final = Program("messaging", MessagingSettings, groups.MESSAGES.name)
ENVIRONMENT: Final = PROGRAM.environment
ROLES: Final = {
    "filter": "Drop messages whose recipient has blocked the sender, replace words, and forward the rest.",
    "collector": "Keep the latest messages of each user.",
    "blocker": "Keep the blocks of each user.",
    "translator": "Keep the replacement of each word.",
    "detector": "Count the messages that each user sends and receives in a session, and block spammers during it.",
}

app = typer.Typer(
    help="Users write to each other: five processors, a web page to write and read, and a load generator.",
    epilog=ENVIRONMENT,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _add_role(role: str, text: str) -> None:
    @app.command(role, help=text, epilog=ENVIRONMENT)
    def serve(
        workers: options.Workers = 1, parent: options.Parent = None, *, fail_fast: FailFast = False
    ) -> None:
        def work(runtime: Runtime[MessagingSettings]) -> int:
            if workers > 1:
                return serving.serve_commands(runtime.settings, [[commands.MODULE, role]] * workers)
            return commands.serve_role(runtime, role, parent)

        sys.exit(PROGRAM.run(work, fail_fast=fail_fast))


for _role, _text in ROLES.items():
    _add_role(_role, _text)


@app.command(epilog=ENVIRONMENT)
def web(parent: options.Parent = None, *, fail_fast: FailFast = False) -> None:
    """Accept messages, serve feeds, and serve a page for both, on STREAMTABLE_HTTP_ADDRESS."""
    sys.exit(PROGRAM.run(lambda runtime: commands.serve_web(runtime, parent), fail_fast=fail_fast))


@app.command("all", epilog=ENVIRONMENT)
def everything(*, fail_fast: FailFast = False) -> None:
    """Run every role and the web service, each in its own process, for demonstrations."""
    sys.exit(PROGRAM.run(lambda runtime: commands.serve_all(runtime.settings), fail_fast=fail_fast))


@app.command(epilog=ENVIRONMENT)
def load(
    rate: options.Rate = 100.0,
    keys: options.Keys = 100,
    skew: options.Skew = 0.0,
    count: options.Count = None,
    seconds: options.Seconds = None,
    *,
    seed: options.Seed,
    spammers: Annotated[
        int,
        typer.Option(
            min=0, max=1000, help="Number of spammers, who send a fifth of all messages and get no replies."
        ),
    ] = 3,
    fail_fast: FailFast = False,
) -> None:
    """Write generated messages to Kafka and report the acknowledged rate."""
    given = LoadOptions(rate=rate, keys=keys, skew=skew, count=count, seconds=seconds, seed=seed)
    sys.exit(PROGRAM.run(lambda runtime: commands.send_load(runtime, given, spammers), fail_fast=fail_fast))


def _user(text: str) -> str:
    try:
        return user_id(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@app.command(epilog=ENVIRONMENT)
def unblock(
    user: Annotated[str, typer.Argument(callback=_user, help="The user to unblock.")],
    *,
    fail_fast: FailFast = False,
) -> None:
    """Unblock a user for all recipients, until the detector reports them as a spammer again; not one whom over 500 have blocked."""
    sys.exit(PROGRAM.run(lambda runtime: commands.unblock(runtime, user), fail_fast=fail_fast))


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
