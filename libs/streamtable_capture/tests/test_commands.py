"""The topics that connectors write are declared as `streamtable topics apply` reads them."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streamtable_admin.declared import load
from streamtable_capture.commands import app

SHOP = {"topic.prefix": "shop", "table.include.list": "public.customers, public\\.orders"}


def declared(tmp_path: Path, *options: str, **config: Any) -> Any:
    file = tmp_path / "postgres.json"
    file.write_text(
        json.dumps(
            {
                "name": "shop",
                "config": {**SHOP, **{key.replace("__", "."): value for key, value in config.items()}},
            }
        )
    )
    return CliRunner().invoke(app, ["declare", "--connector", str(file), *options])


def test_each_table_has_a_topic_that_keeps_its_records_and_transactions_have_one_partition(
    tmp_path: Path,
) -> None:
    done = declared(
        tmp_path, "--partitions", "4", provide__transaction__metadata=True, heartbeat__interval__ms=1000
    )
    assert done.exit_code == 0
    file = tmp_path / "topics.yaml"
    file.write_text(f"defaults: {{partitions: 9, replication: 1}}\n{done.stdout}")
    found = {name: (each.partitions, each.config) for name, each in load(file).descriptions().items()}
    kept = {"retention.ms": "-1"}
    assert found == {
        "shop.public.customers": (4, kept),
        "shop.public.orders": (4, kept),
        "shop.transaction": (1, kept),
        "__debezium-heartbeat.shop": (1, {"retention.ms": "86400000"}),
    }


def test_the_connectors_own_partitions_and_policy_are_declared(tmp_path: Path) -> None:
    given = {
        "topic__creation__default__partitions": 6,
        "topic__creation__default__cleanup__policy": "compact",
    }
    lines = declared(tmp_path, **given).stdout.splitlines()
    assert (
        lines[1]
        == "  shop.public.customers: {partitions: 6, config: {retention.ms: -1, cleanup.policy: compact}}"
    )


@pytest.mark.parametrize("tables", ["public.*", ""])
def test_tables_that_are_not_named_are_refused(tmp_path: Path, tables: str) -> None:
    done = declared(tmp_path, table__include__list=tables)
    assert done.exit_code == 1
    assert "table.include.list" in done.stderr


def test_a_file_that_is_no_connector_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["declare", "--connector", str(tmp_path / "none.json")])
    assert done.exit_code == 1
    assert "is not a connector's JSON file" in done.stderr
