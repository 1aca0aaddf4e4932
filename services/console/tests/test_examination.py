"""The checks of brokers and groups, on a real broker: what the page shows is what `streamtable doctor` says."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from console.examination import Examination
from localkafka.broker import Broker
from localkafka.fixtures import OwnBroker, Topics
from localkafka.waiting import wait_until
from streamtable import Kafka
from streamtable_admin.findings import Level

pytestmark = pytest.mark.broker
LOOSE = {
    "auto.create.topics.enable": "true",
    "offsets.retention.minutes": "60",
}


def doctors(servers: str, folder: Path) -> set[tuple[str, str, str, str]]:
    """Return the warnings and problems of `streamtable doctor`."""
    command = [sys.executable, "-m", "streamtable_cli", "--bootstrap-servers", servers, "doctor"]
    done = subprocess.run(
        [*command, "--over", "0", "--rows", "0", "--json"],
        cwd=folder,
        capture_output=True,
        check=False,
        text=True,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return {
        (each["level"], each["subject"], each["fact"], each["advice"])
        for each in found
        if each["level"] != "ok" and not each["subject"].startswith(("state dir", "process"))
    }


def test_the_findings_are_those_of_doctor_and_go_when_the_trouble_goes_and_a_broker_that_is_away_is_one(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    broker = own_broker(LOOSE)
    topics, kafka = Topics(broker.bootstrap_servers), Kafka(broker.bootstrap_servers, admin_timeout=4.0)
    examination = Examination(kafka)
    table = topics.create("lost-table", config={"cleanup.policy": "delete"})
    group = table.removesuffix("-table")
    letters = topics.create("lost-dead-letters")
    assert letters == f"{group}-dead-letters"
    examination.look()
    checked, found = examination.latest
    shown = {(str(each.level), each.subject, each.fact, each.advice) for each in found}
    assert shown == doctors(broker.bootstrap_servers, tmp_path)
    facts = {each.subject: each.fact for each in found}
    assert "not compacted" in facts[f"topic {table}"]
    assert "has never run" in facts[f"group {group}"]
    assert any("auto.create.topics.enable is true" in each.fact for each in found)
    assert {each.since_ms for each in found} == {checked}

    topics.delete_all()
    wait_until(lambda: not {table, letters} & kafka.admin().topic_partitions().keys())
    examination.look()
    found = examination.latest[1]
    assert {each.subject.partition(" ")[0] for each in found} <= {"broker", "brokers", "clock"}
    assert {each.since_ms for each in found} == {checked}, "what lasts keeps its age"

    broker.stop()
    examination.look()
    (problem,) = examination.latest[1]
    assert (problem.level, problem.subject) == (Level.PROBLEM, "broker")
    assert "nothing listens there" in problem.fact


def test_a_check_ends_soon_when_the_console_is_stopped(broker: Broker) -> None:
    examination = Examination(Kafka(broker.bootstrap_servers))
    examination.start()
    wait_until(lambda: examination.latest[0] is not None)
    examination.stop()
