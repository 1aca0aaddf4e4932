"""`streamtable capture declare`: declares the topics that a connector writes.

The command line loads this as its entry point `capture` in the group `streamtable.commands`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from streamtable.errors import ConfigurationError

_KEPT = {"retention.ms": -1}
_PLAIN_NAME = re.compile(r"[\w$-]+\.[\w$-]+")

app = typer.Typer(no_args_is_help=True, help="Captured tables of databases.")


@app.callback()
def main() -> None:
    """Captured tables of databases."""


@app.command("declare")
def declare_command(
    connectors: Annotated[
        list[Path],
        typer.Option(
            "--connector",
            metavar="FILE.json",
            help="A connector, as POST /connectors takes it; may be repeated.",
        ),
    ],
    *,
    partitions: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            max=10_000,
            help="The partitions of a table's topic, unless the connector says so.",
        ),
    ] = 12,
) -> None:
    """Print a file for `streamtable topics apply` that declares the topics of connectors. Apply it before they start.

    Records are kept until they are deleted by hand, since a captured table is made of all of them. No broker is asked.
    """
    try:
        found = [topic for path in connectors for topic in topics_of(_config(path), partitions).items()]
    except ConfigurationError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    lines = (f"  {name}: {declared}" for name, declared in found)
    print("topics:", *lines, sep="\n")  # noqa: T201 - the output of this command


def topics_of(config: Mapping[str, Any], partitions: int) -> dict[str, str]:
    """Return the topics that a connector writes, each with its declaration in YAML.

    Args:
        config: The settings of a connector of Debezium's.
        partitions: The partitions of a table's topic, if the connector has no `topic.creation.default.partitions`.

    Raises:
        ConfigurationError: The settings do not say which tables it reads.
    """
    prefix = str(config.get("topic.prefix", ""))
    count = int(config.get("topic.creation.default.partitions", partitions))
    count = partitions if count < 1 else count
    policy = str(config.get("topic.creation.default.cleanup.policy", "delete"))
    table = _declared(count, {**_KEPT, "cleanup.policy": "compact"} if policy == "compact" else _KEPT)
    found = {f"{prefix}.{name}": table for name in _tables(config)}
    if not prefix or not found:
        raise ConfigurationError(
            "the connector needs topic.prefix, and table.include.list with a name for each table"
        )
    if str(config.get("provide.transaction.metadata", "false")).lower() == "true":
        # The transactions have an order in one partition only.
        found[f"{prefix}.{config.get('topic.transaction', 'transaction')}"] = _declared(1, _KEPT)
    if int(config.get("heartbeat.interval.ms", 0)) > 0:
        start = config.get("topic.heartbeat.prefix", "__debezium-heartbeat")
        found[f"{start}.{prefix}"] = _declared(1, {"retention.ms": 86_400_000})
    return found


def _tables(config: Mapping[str, Any]) -> Sequence[str]:
    """Return the names of the tables. Raises `ConfigurationError` for patterns: no database is asked."""
    listed = str(config.get("table.include.list", "")).split(",")
    names = [name.strip().replace("\\.", ".") for name in listed if name.strip()]
    if patterns := [name for name in names if not _PLAIN_NAME.fullmatch(name)]:
        raise ConfigurationError(
            f"table.include.list has patterns, {', '.join(patterns)}: name each table, as public.customers"
        )
    return names


def _declared(partitions: int, config: Mapping[str, Any]) -> str:
    settings = ", ".join(f"{name}: {value}" for name, value in config.items())
    return f"{{partitions: {partitions}, config: {{{settings}}}}}"


def _config(path: Path) -> Mapping[str, Any]:
    try:
        config: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))["config"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{path} is not a connector's JSON file ({error!r})") from error
    return config
