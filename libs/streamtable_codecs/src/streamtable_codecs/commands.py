"""`streamtable schemas`: compare the schemas of programs with their registries, and register them.

The command line loads this as its entry point `schemas` in the group `streamtable.commands`.
"""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from streamtable_cli.modules import load_groups
from streamtable_cli.output import AsJson, show_json, show_table
from streamtable_codecs.plan import PlannedSchema, WrittenSchema, planned, schemas_of

Graph = Annotated[
    list[str],
    typer.Option(
        "--graph", metavar="MODULE:NAME", help="Groups and flows whose schemas these are; may be repeated."
    ),
]
Inputs = Annotated[
    bool, typer.Option("--inputs", help="Also the schemas of their inputs, for programs that emit them.")
]
_COLOURS = {"same": "", "register": "green", "refused": "red"}

app = typer.Typer(no_args_is_help=True, help="Schemas of programs, and the registries that have them.")


@app.command("plan")
def plan_command(graph: Graph, *, inputs: Inputs = False, as_json: AsJson = False) -> None:
    """Show the schemas that `apply` would register. Exit code 2 if a registry would refuse one."""
    if any(each.step == "refused" for _, each in _shown(graph, inputs=inputs, as_json=as_json)):
        raise typer.Exit(2)


@app.command("apply")
def apply_command(graph: Graph, *, inputs: Inputs = False, as_json: AsJson = False) -> None:
    """Register the missing schemas. If a registry would refuse one of them, none is registered."""
    found = _shown(graph, inputs=inputs, as_json=as_json)
    if any(each.step == "refused" for _, each in found):
        typer.echo("nothing was registered: change the types that are refused, and apply again", err=True)
        raise typer.Exit(2)
    for each, known in found:
        if known.step == "register":
            each.registry.register_schema(each.subject, each.definition)


@app.command("check")
def check_command(graph: Graph, *, inputs: Inputs = False, as_json: AsJson = False) -> None:
    """Check before a start that all schemas are registered. Exit code 2 if one is not."""
    if any(each.step != "same" for _, each in _shown(graph, inputs=inputs, as_json=as_json)):
        raise typer.Exit(2)


def _shown(graph: list[str], *, inputs: bool, as_json: bool) -> list[tuple[WrittenSchema, PlannedSchema]]:
    """Show the schemas of groups, and what to do with each. Returns both."""
    groups = [each for spec in dict.fromkeys(graph) for each in load_groups(spec)]
    found = [(each, planned(each)) for each in schemas_of(groups, inputs=inputs)]
    if as_json:
        show_json([asdict(each) for _, each in found])
    else:
        rows = [
            (each.subject, Text(each.step, _COLOURS[each.step]), each.topic, each.details)
            for _, each in found
        ]
        show_table(("subject", "to do", "topic", "details"), rows)
    return found
