"""`streamtable users`: who may do what at a Kafka that asks who comes, compared with what is declared."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from streamtable.errors import ConfigurationError
from streamtable.kafka.rights import Right
from streamtable_cli.declared import Declared, load
from streamtable_cli.output import AsJson, count, note, show_json, show_table
from streamtable_cli.rights import rights_of
from streamtable_cli.session import Session, session_of
from streamtable_cli.topics import CHANGE_S, File

app = typer.Typer(
    no_args_is_help=True, help="Users: what each may do at a Kafka that asks who comes, and their passwords."
)

Passwords = Annotated[
    Path | None,
    typer.Option(
        "--passwords",
        metavar="FOLDER",
        help="Set the passwords of users too (SCRAM-SHA-512): FOLDER/<user>.password holds that of each.",
    ),
]


@dataclass(frozen=True, slots=True)
class RightsPlan:
    """Rights of the declared users: what has to be granted, what is too much, and what is as it should be."""

    grant: tuple[Right, ...]
    revoke: tuple[Right, ...]
    same: tuple[Right, ...]


@app.command("plan")
def plan_command(
    ctx: typer.Context, file: File = Path("infra/topics.yaml"), *, as_json: AsJson = False
) -> None:
    """Show what `apply` would do. The least rights of a user follow from what it is declared to do."""
    _show(_plan(session_of(ctx), load(file)), as_json=as_json)


@app.command("apply")
def apply_command(
    ctx: typer.Context,
    file: File = Path("infra/topics.yaml"),
    passwords: Passwords = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Grant declared users what they need, and take from them what they do not; others are left alone.

    It takes a user that may ALTER the cluster. Rights that count for one host only, and rules that deny, stay as they are.
    """
    session = session_of(ctx)
    declared = load(file)
    known = read_passwords(passwords, declared) if passwords is not None else {}
    found = _plan(session, declared)
    with replace(session, timeout=max(session.timeout, CHANGE_S)).admin() as admin:
        # First what is added: a user whose rights change can work all the time.
        admin.grant(found.grant)
        admin.revoke(found.revoke)
        admin.set_passwords(known)
    _show(found, as_json=as_json)
    if known:
        note(f"{count(len(known), 'password')} set")


def read_passwords(folder: Path, declared: Declared) -> Mapping[str, bytes]:
    """The content of `<user>.password` for each declared user, without the end of its line.

    Raises:
        ConfigurationError: one is missing, empty, or has more than one line.
    """
    found = {}
    for user in declared.users:
        file = folder / f"{user}.password"
        try:
            text = file.read_bytes().rstrip(b"\r\n")
        except OSError as error:
            raise ConfigurationError(
                f"{file} cannot be read ({error.strerror}): it has to hold the password of user {user!r}"
            ) from error
        if not text or b"\n" in text:
            raise ConfigurationError(f"{file}: expected one line with the password of user {user!r}")
        found[user] = text
    return found


def plan(wanted: set[Right], found: set[Right]) -> RightsPlan:
    """Compare what users need with what they have."""
    return RightsPlan(
        grant=tuple(sorted(wanted - found)),
        revoke=tuple(sorted(found - wanted)),
        same=tuple(sorted(wanted & found)),
    )


def _plan(session: Session, declared: Declared) -> RightsPlan:
    wanted = rights_of(declared)
    with session.admin() as admin:
        return plan(wanted, admin.rights(declared.users))


def _show(found: RightsPlan, *, as_json: bool) -> None:
    if as_json:
        show_json(asdict(found))
        return
    rows: list[tuple[str, str | Text, str]] = [(each.user, "grant", str(each)) for each in found.grant]
    rows += [(each.user, Text("revoke", "yellow"), str(each)) for each in found.revoke]
    rows += [(each.user, "-", str(each)) for each in found.same]
    show_table(("user", "to do", "right"), rows)
