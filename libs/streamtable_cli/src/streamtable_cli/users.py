"""`streamtable users`: ACLs and passwords of the declared users, on Kafka with authentication."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from streamtable.errors import ConfigurationError
from streamtable_admin.acls import AclPlan, plan_declared_acls
from streamtable_admin.declared import Declared, load
from streamtable_admin.text import count
from streamtable_cli.output import AsJson, note, show_json, show_table
from streamtable_cli.session import CommandSession, session_of
from streamtable_cli.topics import CHANGE_S, DECLARED, File

app = typer.Typer(
    no_args_is_help=True,
    help="Users: their ACLs and passwords, on Kafka with authentication and ACLs (SASL/SCRAM, TLS).",
)

Passwords = Annotated[
    Path | None,
    typer.Option(
        "--passwords",
        metavar="FOLDER",
        help="Also set passwords (SCRAM-SHA-512), from FOLDER/<user>.password.",
    ),
]


@app.command("plan")
def plan_command(ctx: typer.Context, file: File = DECLARED, *, as_json: AsJson = False) -> None:
    """Show the changes that `apply` would make. The ACLs that a user needs follow from its declaration."""
    _show(_plan(session_of(ctx), load(file)), as_json=as_json)


@app.command("apply")
def apply_command(
    ctx: typer.Context, file: File = DECLARED, passwords: Passwords = None, *, as_json: AsJson = False
) -> None:
    """Grant declared users the ACLs that they need and revoke those that they do not; other users are not changed.

    This needs ALTER on the cluster. ACLs for a single host, and those that deny, are not changed.
    """
    session = session_of(ctx)
    declared = load(file)
    known = read_passwords(passwords, declared) if passwords is not None else {}
    found = _plan(session, declared)
    with session.cluster(at_least=CHANGE_S) as cluster:
        # Granted first, so that a user whose ACLs change can work throughout.
        cluster.admin.grant(found.grant)
        cluster.admin.revoke(found.revoke)
        cluster.admin.set_passwords(known)
    _show(found, as_json=as_json)
    if known:
        note(f"{count(len(known), 'password')} set")


def read_passwords(folder: Path, declared: Declared) -> Mapping[str, bytes]:
    """Return the content of `<user>.password` for each declared user, without the line end.

    Raises:
        ConfigurationError: A file is missing, empty, or has more than one line.
    """
    found = {}
    for user in declared.users:
        file = folder / f"{user}.password"
        try:
            text = file.read_bytes().rstrip(b"\r\n")
        except OSError as error:
            raise ConfigurationError(
                f"{file} cannot be read ({error.strerror}): it must contain the password of user {user!r}"
            ) from error
        if not text or b"\n" in text:
            raise ConfigurationError(f"{file}: expected one line with the password of user {user!r}")
        found[user] = text
    return found


def _plan(session: CommandSession, declared: Declared) -> AclPlan:
    with session.cluster() as cluster:
        return plan_declared_acls(cluster, declared)


def _show(found: AclPlan, *, as_json: bool) -> None:
    if as_json:
        show_json(asdict(found))
        return
    rows: list[tuple[str, str | Text, str]] = [(each.user, "grant", str(each)) for each in found.grant]
    rows += [(each.user, Text("revoke", "yellow"), str(each)) for each in found.revoke]
    rows += [(each.user, "-", str(each)) for each in found.same]
    show_table(("user", "to do", "ACL"), rows)
