"""`streamtable graph`: group graphs as text, Mermaid, JSON or the text of Graphviz, without a broker."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from streamtable import Group
from streamtable.base.topics import Stream, Table
from streamtable.errors import ConfigurationError
from streamtable_admin.graph_model import (
    NAMED,
    GraphModel,
    NodeKind,
    changed,
    codecs,
    function,
    handler,
    model_of,
)
from streamtable_cli.interchange import asyncapi, openlineage
from streamtable_cli.modules import load_groups
from streamtable_cli.output import show_json
from streamtable_cli.session import session_of

app = typer.Typer(no_args_is_help=True, help="Group graphs: the topics that groups read, keep and write.")

_SHAPES = {
    NodeKind.STREAM: ("[(", ")]"),
    NodeKind.GROUP: ("[", "]"),
    NodeKind.TABLE: ("[(", ")]"),
    NodeKind.LOOP: ("[(", ")]"),
    NodeKind.VISITS: ("([", "])"),
    NodeKind.ASIDE: ("([", "])"),
}
_DOT_STYLES = {
    NodeKind.STREAM: 'shape=cylinder fillcolor="#e8f1fb"',
    NodeKind.GROUP: 'shape=box style="filled,rounded" fillcolor="#1f4e79" fontcolor=white',
    NodeKind.TABLE: 'shape=cylinder fillcolor="#fdf3dc"',
    NodeKind.LOOP: 'shape=cylinder fillcolor="#e9f5ea"',
    NodeKind.VISITS: 'shape=oval fillcolor="#f2ecf9"',
    NodeKind.ASIDE: 'shape=oval style="filled,dashed" fillcolor="#f3f3f3"',
}


class Format(StrEnum):
    """The formats of a graph."""

    TEXT = "text"
    MERMAID = "mermaid"
    JSON = "json"
    DOT = "dot"
    ASYNCAPI = "asyncapi"
    OPENLINEAGE = "openlineage"


@app.callback()
def graph() -> None:
    """Show group graphs: the topics that groups read, keep and write."""


@app.command("show")
def show(
    ctx: typer.Context,
    groups: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:NAME",
            help="Groups and flows: several are drawn as one picture. MODULE:FUNCTION(TEXT) if a function makes the group.",
        ),
    ],
    *,
    form: Annotated[
        Format,
        typer.Option("--format", help="text, mermaid, json, dot (of Graphviz), asyncapi or openlineage."),
    ] = Format.TEXT,
    aside: Annotated[
        bool, typer.Option("--aside", help="Also show dead letters and retries; text always does.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="A file to write to.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Draw group graphs, joined through the topics that they share."""
    if as_json and form not in (Format.TEXT, Format.JSON):
        raise typer.BadParameter(f"--json and --format {form} exclude each other")
    loaded = [each for spec in dict.fromkeys(groups) for each in load_groups(spec)]
    picture = model_of(loaded, aside=aside)
    if form is Format.JSON or as_json:
        if output is not None:
            raise typer.BadParameter("JSON goes to standard output: --output is for the other formats")
        nodes, edges = (list(map(asdict, each)) for each in (picture.nodes.values(), picture.edges))
        show_json({"nodes": nodes, "edges": edges})
        return
    match form:
        case Format.MERMAID:
            text = mermaid_of(picture)
        case Format.DOT:
            text = dot_of(picture)
        case Format.ASYNCAPI:
            text = f"{json.dumps(asyncapi(loaded), indent=2)}\n"
        case Format.OPENLINEAGE:
            cluster = session_of(ctx).settings.bootstrap_servers.partition(",")[0]
            text = openlineage(loaded, cluster, datetime.now(UTC))
        case _:
            text = text_of(loaded)
    if output is None:
        print(text, end="")
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{output} cannot be written: {error.strerror}") from error


def mermaid_of(picture: GraphModel) -> str:
    numbers = {name: f"n{number}" for number, name in enumerate(picture.nodes)}
    lines = ["flowchart LR"]
    for name, node in picture.nodes.items():
        opening, closing = _SHAPES[node.kind]
        label = f"{node.label}<br>{node.detail}" if node.detail else node.label
        lines.append(f'  {numbers[name]}{opening}"{_quoted(label)}"{closing}')
    for edge in picture.edges:
        label = f'|"{_quoted(edge.label)}"|' if edge.label else ""
        lines.append(f"  {numbers[edge.source]} -->{label} {numbers[edge.target]}")
    return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    return text.replace('"', "#quot;")


def dot_of(picture: GraphModel) -> str:
    """Return the graph as text of Graphviz, whose `dot -Tsvg` draws it. Groups are dark, tables yellow, loops green."""
    numbers = {name: f"n{number}" for number, name in enumerate(picture.nodes)}
    lines = ["digraph {", "  rankdir=LR", '  node [style=filled fontname="Helvetica,Arial,sans-serif"]']
    lines.append('  edge [fontsize=11 fontname="Helvetica,Arial,sans-serif"]')
    for name, node in picture.nodes.items():
        label = "\n".join(filter(None, (node.label, node.detail)))
        lines.append(f"  {numbers[name]} [label={_dot(label)} {_DOT_STYLES.get(node.kind, '')}]")
    edges = [
        f"  {numbers[edge.source]} -> {numbers[edge.target]} [label={_dot(edge.label)}]"
        for edge in picture.edges
    ]
    return "\n".join([*lines, *edges, "}", ""])


def _dot(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def text_of(groups: Sequence[Group[Any, Any]]) -> str:
    lines = []
    for group in groups:
        lines += [f"group {group.name}", *_edges(group)]
        lines.append(f"  aside   {group.dead_letters}, sent again by {group.retry}")
        states = (group.named_topic(state.name) for state in group.states)
        for name in (*(output.stream.name for output in group.outputs), f"{group.name}-table", *states):
            fed = [(each.name, how) for each in groups if (how := _reads(each, name)) is not None]
            if fed:
                lines.append(f"  feeds   {', '.join(f'{each}{how}' for each, how in fed)} by {name}")
    return "\n".join([*lines, ""])


def _edges(group: Group[Any, Any]) -> Iterator[str]:
    loop = group.loop.stream if group.loop else None
    for edge in group.inputs:
        word = "loops  " if edge.stream == loop else "reads  "
        yield f"  {word} {edge.stream.name} ({_codecs(edge.stream)}): {handler(edge)}"
    for join in group.joins:
        wait = f", waits {join.wait:g} s for it" if join.wait else ""
        yield f"  joins   {join.table.name} ({_codecs(join.table)}){wait}"
    for change in group.changes:
        yield f"  changes {change.table.name}, from the {change.start}: {changed(change).partition(': ')[2]}"
    for lookup in group.lookups:
        yield f"  looks   {lookup.table.name} ({_codecs(lookup.table)}) up"
    if group.persist is not None:
        yield f"  keeps   {group.table.name} ({_codecs(group.table)})"
    for state in group.states:
        yield f"  keeps   {group.named_topic(state.name)} ({_codecs(group.state_table(state))})"
    for name in filter(NAMED.__contains__, group.named_tables):
        yield f"  keeps   {group.named_topic(name)} ({NAMED[name]})"
    for output in group.outputs:
        yield f"  writes  {output.stream.name} ({_codecs(output.stream)})"
    for timer in group.timers:
        yield f"  timer   {timer.name} in {timer.clock} time: {function(timer.handler)}"
    for visit in group.visits:
        yield f"  visits  {visit.name} by {group.visits_topic}: {function(visit.handler)}"


def _codecs(found: Stream[Any, Any] | Table[Any, Any]) -> str:
    return codecs(found.key, found.value)


def _reads(group: Group[Any, Any], topic: str) -> str | None:
    """Return how a group reads a topic: "" for an input, None if it does not read it."""
    if topic in {edge.stream.name for edge in group.inputs}:
        return ""
    if topic in {edge.table.name for edge in group.joins}:
        return " (join)"
    return " (lookup)" if topic in {edge.table.name for edge in group.lookups} else None
