"""`streamtable topics`: lists topics, and compares declared topics with those of the broker."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from streamtable.base.types import TopicPartition
from streamtable_admin.cluster import INTERNAL_PREFIX, Cluster
from streamtable_admin.declaration import declaration_of, yaml_of
from streamtable_admin.declared import Defaults, load
from streamtable_admin.text import count
from streamtable_admin.topic_plan import TopicPlan, plan_topics
from streamtable_cli.modules import load_groups
from streamtable_cli.output import AsJson, show_json, show_table
from streamtable_cli.session import CommandSession, session_of
from streamtable_cli.tail import tail

CHANGE_S = 30.0
DECLARED = Path("infra/topics.yaml")

app = typer.Typer(no_args_is_help=True, help="Topics: existing and declared ones, and their records.")

File = Annotated[Path, typer.Option("--file", metavar="FILE", help="The file that declares the topics.")]


@app.command("list")
def list_command(
    ctx: typer.Context,
    *,
    internal: Annotated[bool, typer.Option("--internal", help="Also Kafka's own topics.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the topics: partitions, replicas, clean-up policy and records.

    Records are counted as the offsets between start and end, which include transaction markers and compacted records.
    """
    with session_of(ctx).cluster() as cluster:
        known = cluster.admin.topic_partitions()
        names = [name for name in known if internal or not name.startswith(INTERNAL_PREFIX)]
        described = sorted(cluster.admin.describe(names).items())
        found = [_topic(cluster, name, topic) for name, topic in described]
    if as_json:
        show_json(found)
    else:
        unknown = "unknown: a partition has no leader"
        rows = [[unknown if value is None else value for value in each.values()] for each in found]
        show_table(("topic", "partitions", "replicas", "cleanup.policy", "records"), rows)


def _topic(cluster: Cluster, name: str, topic: Any) -> dict[str, Any]:
    places = [TopicPartition(name, number) for number in range(topic.partitions)]
    marks = cluster.admin.watermarks_known(places)
    return {
        "name": name,
        "partitions": topic.partitions,
        "replicas": topic.replication,
        "cleanup_policy": topic.config.get("cleanup.policy", ""),
        "records": sum(high - low for low, high in marks.values()) if len(marks) == len(places) else None,
    }


@app.command("plan")
def plan_command(ctx: typer.Context, file: File = DECLARED, *, as_json: AsJson = False) -> None:
    """Show the changes that `apply` would make. Exit code 2 if it would refuse."""
    found = _plan(session_of(ctx), file)
    _show(found, as_json=as_json)
    if found.refused:
        raise typer.Exit(2)


@app.command("apply")
def apply_command(ctx: typer.Context, file: File = DECLARED, *, as_json: AsJson = False) -> None:
    """Create missing topics and make safe changes to configurations. If any change must be refused, none is made."""
    session = session_of(ctx)
    found = _plan(session, file)
    _show(found, as_json=as_json)
    if found.refused:
        typer.echo(
            "nothing was changed: correct the file, or the topics that are refused, and apply it again",
            err=True,
        )
        raise typer.Exit(2)
    with session.cluster(at_least=CHANGE_S) as cluster:
        cluster.admin.create_topics(found.create)
        for difference in found.alter:
            cluster.admin.alter_topic(difference.topic, {difference.name: difference.declared})


@app.command("declare")
def declare_command(
    programs: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:NAME",
            help="Groups and flows. MODULE:FUNCTION(TEXT) if a function makes the group.",
        ),
    ],
    *,
    partitions: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="The partitions of each topic.")
    ] = Defaults().partitions,
    replication: Annotated[
        int, typer.Option(metavar="N", min=1, max=100, help="The replicas of each partition.")
    ] = Defaults().replication,
) -> None:
    """Print a file for `apply` that declares the topics of groups and flows, for you to complete. No broker is asked.

    Streams between the groups keep their records until they are deleted by hand; other streams have the retention of the
    broker. Topics that another file declares, such as the inputs, are to be deleted from one of both.
    """
    groups = [each for spec in dict.fromkeys(programs) for each in load_groups(spec)]
    defaults = Defaults(partitions=partitions, replication=replication)
    print(yaml_of(declaration_of(groups, defaults)), end="")


def _plan(session: CommandSession, file: Path) -> TopicPlan:
    declared = load(file).descriptions()
    with session.cluster() as cluster:
        return plan_topics(declared, cluster.admin.describe(declared))


def _show(found: TopicPlan, *, as_json: bool) -> None:
    if as_json:
        show_json(asdict(found))
        return
    rows: list[tuple[str, str | Text, str]] = []
    for topic in found.create:
        config = ", ".join(f"{name}={value}" for name, value in topic.config.items())
        details = f"{count(topic.partitions, 'partition')}, {count(topic.replication, 'replica')} {config}"
        rows.append((topic.name, "create", details))
    rows += [(each.topic, "alter", f"{each.name}: {each.found} -> {each.declared}") for each in found.alter]
    for each in found.refused:
        details = f"{each.name} is {each.found}, but {each.declared} is declared: {each.problem}"
        rows.append((each.topic, Text("refused", "red"), details))
    rows += [(name, "-", "as declared") for name in found.same]
    show_table(("topic", "to do", "details"), rows)


app.command("tail")(tail)
