"""`streamtable store`: create a central store, check that it keeps acknowledged writes, and sweep deleted rows.

The command line loads this as its entry point `store` in the group `streamtable.commands`.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from microbatch.store_settings import StoreSettings
from microbatch.stores.port import Admin, SweepDriver
from microbatch.stores.store import RemoteStore
from microbatch.stores.sweep import SHORTEST_WAIT, sweep
from streamtable.errors import ConfigurationError
from streamtable_admin.findings import Finding, Level
from streamtable_admin.text import count, duration
from streamtable_cli.output import AsJson, note, show_findings, show_json, show_table

Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        envvar="STREAMTABLE_STORE",
        show_default=False,
        help="URL of the store: redis://, elasticsearch+https://, cassandra://. The process list shows a password in it: "
        "set the environment variable instead.",
    ),
]
Tenant = Annotated[str, typer.Option(metavar="TENANT", help="Owner of the rows: the prefix of the group.")]

app = typer.Typer(no_args_is_help=True, help="Create, check and sweep the central stores of micro-batches.")


@app.command()
def create(
    url: Url,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be created.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create the index, or keyspace and table, with explicit settings, after showing what will be created.

    Existing parts are not changed. Redis needs nothing to be created.
    """
    with _admin(url, "streamtable-create") as admin:
        steps = list(admin.plan())
        if as_json:
            show_json([each._asdict() for each in steps])
        elif steps:
            show_table(("to make", "name", "settings"), steps)
        else:
            note("everything is there")
        if not dry_run:
            admin.create()


@app.command()
def check(url: Url, tenant: Tenant = "streamtable-check", *, as_json: AsJson = False) -> None:
    """Check the store: mapping, eviction, replicas, durability. It changes nothing.

    Exit code 1 if there is a problem. With the group's tenant, also checks that its rows can be read.
    """
    with _admin(url, tenant) as admin:
        found = list(admin.examine())
    findings = [Finding(Level(each.level), each.subject, each.fact, each.advice) for each in found]
    show_findings(findings, as_json=as_json)


@app.command("sweep")
def sweep_command(
    url: Url,
    tenant: Tenant,
    *,
    after: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=SHORTEST_WAIT,
            help="Longer than any process can stall and any write can be in flight.",
        ),
    ] = 86_400,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the rows that would be removed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove deleted rows that no reader or writer can need any more, while the group keeps running.

    The first sweep only records the deleted rows; a later sweep, --after seconds later, removes them. Run it once a day.
    """
    with _admin(url, tenant) as admin:
        driver = admin.driver
        if not isinstance(driver, SweepDriver):
            raise ConfigurationError("Cassandra is not swept: give its rows a ttl, or leave deleted ones")
        swept = sweep(driver, RemoteStore(driver), after=after, now=time.time(), keep=dry_run)
    if as_json:
        show_json(swept._asdict())
        return
    done = f"{swept.may_go} can be removed" if dry_run else f"{swept.removed} removed"
    show_table(("deleted rows", "of them"), [(swept.deletions, done)])
    if swept.waits_for:
        note(
            f"{count(swept.deletions, 'deletion')} recorded: the first can be removed in {duration(swept.waits_for)}"
        )


@contextmanager
def _admin(url: str, tenant: str) -> Iterator[Admin]:
    admin = StoreSettings.parse(url).admin(tenant)
    try:
        yield admin
    finally:
        admin.driver.close()
