"""`streamtable doctor`: whether a deployment is well, and what to do where it is not."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from streamtable import Group
from streamtable.errors import RetryLater, StreamtableError
from streamtable.kafka.admin import BrokerAddress, KafkaAdmin
from streamtable_cli import checks, reach
from streamtable_cli.declared import load
from streamtable_cli.findings import Finding, Level, problem
from streamtable_cli.modules import load_group
from streamtable_cli.output import AsJson, show_json, show_table
from streamtable_cli.session import Session, session_of

DECLARED = Path("infra/topics.yaml")
CONNECT_S = 2.0
_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


def doctor(
    ctx: typer.Context,
    *,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"Where the topics are declared; {DECLARED} if that is there."),
    ] = None,
    graph: Annotated[
        list[str] | None, typer.Option(metavar="MODULE:NAME", help="A group to look at; may be repeated.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(metavar="GROUP", help="A group to look at, by name; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look at a deployment from here: brokers, topics, groups, disk and clock. It changes nothing.

    Exit code 1 if there is a problem. Groups are those of --graph, --group and the file; without any, all that have a
    dead-letter topic.
    """
    session = session_of(ctx)
    graphs = [load_group(spec) for spec in graph or ()]
    if file is None and DECLARED.exists():
        file = DECLARED
    names = dict.fromkeys([each.name for each in graphs] + list(group or ()))
    if file is not None:
        names |= dict.fromkeys(load(file).groups)
    findings = list(_examine(session, file, graphs, list(names)))
    if as_json:
        show_json([asdict(each) for each in findings])
    else:
        show_table(
            ("", "what", "found", "what to do"),
            (
                (Text(each.level, _COLOURS[each.level]), each.subject, each.fact, each.advice)
                for each in findings
            ),
        )
    if any(each.level is Level.PROBLEM for each in findings):
        raise typer.Exit(1)


def _examine(
    session: Session, file: Path | None, graphs: Iterable[Group[Any, Any]], names: list[str]
) -> Iterator[Finding]:
    settings = session.settings
    yield from checks.state_dir(settings.state_dir)
    admin = session.kafka.admin()
    try:
        try:
            brokers = admin.brokers()
        except RetryLater:
            yield from reach.bootstrap(settings.bootstrap_servers, CONNECT_S)
            return
        yield from _with_admin(session, admin, brokers, file, graphs, names)
    finally:
        admin.close()


def _with_admin(
    session: Session,
    admin: KafkaAdmin,
    brokers: list[BrokerAddress],
    file: Path | None,
    graphs: Iterable[Group[Any, Any]],
    names: list[str],
) -> Iterator[Finding]:
    reached = list(reach.advertised(brokers, session.settings.bootstrap_servers, CONNECT_S))
    yield from reached
    if all(each.level is Level.PROBLEM for each in reached):
        return  # nothing else can be asked of brokers that are not where they say
    yield from _asked("version", lambda: checks.abilities(session, brokers))
    yield from _asked("brokers", lambda: checks.settings(admin, brokers))
    if file is not None:
        declared = file
        yield from _asked("topics", lambda: checks.topics(admin, declared))
    for each in graphs:
        yield from _asked(f"graph {each.name}", lambda each=each: checks.graph(admin, each))  # type: ignore[misc]  # bound now
    for name in names or _with_dead_letters(admin):
        yield from _asked(f"group {name}", lambda name=name: checks.group(session, admin, name))  # type: ignore[misc]  # bound now
    yield from _asked("clock", lambda: checks.clock(admin))


def _with_dead_letters(admin: KafkaAdmin) -> list[str]:
    suffix = "-dead-letters"
    return [name.removesuffix(suffix) for name in admin.topic_partitions() if name.endswith(suffix)]


def _asked(subject: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """What a check finds; that it could not be made is a finding too."""
    try:
        return list(check())
    except StreamtableError as error:
        return [problem(subject, f"could not be looked at: {error}", "see there, and run this again")]
