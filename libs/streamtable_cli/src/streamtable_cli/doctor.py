"""`streamtable doctor`: finds problems of a deployment and says how to fix them."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from streamtable import Group
from streamtable_admin.cluster import BrokerAddress, Cluster
from streamtable_admin.declared import load
from streamtable_admin.decode import Decoder
from streamtable_admin.examination import checked, cluster_findings, groups_with_dead_letters, reached_brokers
from streamtable_admin.findings import Finding
from streamtable_admin.lag_trend import lag_trends
from streamtable_admin.process_status import process_findings
from streamtable_cli import auth_check, checks, unreadable
from streamtable_cli.decoding import decoder_of
from streamtable_cli.modules import load_groups
from streamtable_cli.output import AsJson, show_findings
from streamtable_cli.session import CommandSession, session_of
from streamtable_cli.topics import DECLARED

SCHEMAS = Path("proto/avro")
OVER_S = 10.0
"""The seconds between two snapshots: longer than batches take, so that a running group commits in between."""


def doctor(
    ctx: typer.Context,
    *,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"The file that declares the topics; {DECLARED} if it exists."),
    ] = None,
    graph: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:NAME", help="A group or flow to check; may be repeated."),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(metavar="GROUP", help="A group to check, by name; may be repeated.")
    ] = None,
    status_topic: Annotated[
        str,
        typer.Option(
            metavar="TOPIC",
            envvar="SERVICEKIT_STATUS_TOPIC",
            help="The topic to which processes report their status.",
        ),
    ] = "streamtable-status",
    schemas: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help=f"A folder with the schemas of statuses and rows; {SCHEMAS} if it exists."
        ),
    ] = None,
    over: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="How long to watch groups with lag; 0: do not watch."),
    ] = OVER_S,
    rows: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            max=1_000_000,
            help="How many of the newest offsets of each partition of a table to decode; 0: none.",
        ),
    ] = unreadable.NEWEST,
    as_json: AsJson = False,
) -> None:
    """Check a deployment from this machine: brokers, topics, groups, processes, disk and clocks. Changes nothing.

    Exit code 1 if there is a problem. Groups are those of --graph, --group and the file; without any, all that have a
    dead-letter topic. Findings name the member of a partition that falls behind, and the process that was killed.

    The newest rows of tables are decoded: those of --graph (kept, joined, looked up) with the group's codecs, those of
    other groups by the schemas that they name.
    """
    graphs = [each for spec in graph or () for each in load_groups(spec)]
    file = file or (DECLARED if DECLARED.exists() else None)
    names = [*(each.name for each in graphs), *(group or ()), *(load(file).groups if file else ())]
    decoder = decoder_of(schemas or (SCHEMAS if SCHEMAS.exists() else None))
    asked = _Asked(file, graphs, list(dict.fromkeys(names)), status_topic, decoder, over, rows)
    show_findings(list(_examine(session_of(ctx), asked)), as_json=as_json)


@dataclass(frozen=True)
class _Asked:
    """The subjects of the checks. Without groups, all groups with a dead-letter topic are checked."""

    file: Path | None
    graphs: list[Group[Any, Any]]
    groups: list[str]
    status_topic: str
    decoder: Decoder
    over: float
    rows: int


def _examine(session: CommandSession, asked: _Asked) -> Iterator[Finding]:
    yield from checks.state_dir(session.settings.state_dir)
    yield from checks.native_loops(session.settings.native)
    with session.unchecked_cluster() as cluster:
        brokers, found = reached_brokers(cluster)
        yield from found
        if brokers:
            yield from _examine_cluster(cluster, brokers, asked)


def _examine_cluster(cluster: Cluster, brokers: list[BrokerAddress], asked: _Asked) -> Iterator[Finding]:
    yield from checked("access", lambda: auth_check.own_authentication(cluster, brokers))
    groups = asked.groups or groups_with_dead_letters(cluster)
    if (file := asked.file) is not None:
        yield from checked("topics", lambda: checks.topics(cluster, file))
        yield from checked("users", lambda: auth_check.users(cluster, file))
    for each in asked.graphs:
        yield from checked(f"graph {each.name}", lambda each=each: checks.graph(cluster, each))  # type: ignore[misc]  # bound now
    now_ms = time.time_ns() // 1_000_000
    yield from cluster_findings(cluster, brokers, groups, now_ms, file=file)
    if asked.rows:
        yield from _rows(cluster, groups, asked)
    yield from checked("lag", lambda: lag_trends(cluster, groups, asked.over, time.monotonic, time.sleep))
    yield from checked(
        "processes",
        lambda: process_findings(cluster, asked.status_topic, asked.decoder, time.time_ns() // 1_000_000),
    )


def _rows(cluster: Cluster, groups: list[str], asked: _Asked) -> Iterator[Finding]:
    """Check the newest rows of tables, with the codecs of --graph or the schemas that rows name."""
    for each in asked.graphs:
        yield from checked(
            f"rows of {each.name}",
            lambda each=each: unreadable.of_graph(cluster, each, asked.rows),  # type: ignore[misc]  # bound now
        )
    for name in [each for each in groups if each not in {graph.name for graph in asked.graphs}]:
        yield from checked(
            f"rows of {name}",
            lambda name=name: unreadable.of_name(cluster, name, asked.decoder, asked.rows),  # type: ignore[misc]  # bound now
        )
