"""`streamtable topics`: compare the declared topics with the broker's, and make what is missing."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from streamtable.declared import Plan, load, plan
from streamtable.errors import RetryLater
from streamtable.kafka import Kafka
from streamtable.kafka.cluster import KafkaCluster
from streamtable.settings import Settings

ANSWER_S = 3.0
CHANGE_S = 30.0

app = typer.Typer(no_args_is_help=True, help="Topics as declared in a file.")

File = Annotated[Path, typer.Option("--file", help="Where the topics are declared.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("plan")
def plan_command(file: File = Path("infra/topics.yaml"), *, as_json: AsJson = False) -> None:
    """Show what `apply` would do. Exit code 2 if it would refuse."""
    found = _plan(file)
    _show(found, as_json=as_json)
    if found.refused:
        raise typer.Exit(2)


@app.command("apply")
def apply_command(file: File = Path("infra/topics.yaml"), *, as_json: AsJson = False) -> None:
    """Create what is missing and alter what is safe to alter; nothing at all if anything has to be refused."""
    found = _plan(file)
    _show(found, as_json=as_json)
    if found.refused:
        raise typer.Exit(2)
    cluster = _cluster(CHANGE_S)
    cluster.create_topics(found.create)
    for difference in found.alter:
        cluster.alter_topic(difference.topic, {difference.name: difference.declared})
    _wait_visible(cluster, [topic.name for topic in found.create])


def _plan(file: Path) -> Plan:
    declared = load(file).descriptions()
    return plan(declared, _cluster(ANSWER_S).describe(declared))


def _cluster(timeout: float) -> KafkaCluster:
    settings = Settings.from_environment()
    return Kafka(settings.bootstrap_servers, settings.kafka, admin_timeout=timeout).cluster()


def _wait_visible(cluster: KafkaCluster, names: list[str]) -> None:
    # The controller has made them; a service that starts right after this must not find one missing.
    deadline = time.monotonic() + CHANGE_S
    while len(cluster.describe(names)) < len(names):
        if time.monotonic() > deadline:
            raise RetryLater(f"the broker does not show its new topics after {CHANGE_S:.0f} s")
        time.sleep(0.1)


def _show(found: Plan, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(found), indent=2))
        return
    table = Table("topic", "to do", "details")
    for topic in found.create:
        config = ", ".join(f"{name}={value}" for name, value in topic.config.items())
        table.add_row(
            topic.name, "create", f"{topic.partitions} partitions, {topic.replication} replicas {config}"
        )
    for difference in found.alter:
        table.add_row(
            difference.topic, "alter", f"{difference.name}: {difference.found} -> {difference.declared}"
        )
    for difference in found.refused:
        table.add_row(
            difference.topic,
            "[red]refused[/red]",
            f"{difference.name} is {difference.found}, declared is {difference.declared}: {difference.problem}",
        )
    for name in found.same:
        table.add_row(name, "-", "as declared")
    Console().print(table)
