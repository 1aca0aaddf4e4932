"""Spark's jobs where people run them: on a schedule in Kubernetes, and in the compose stack."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from confluent_kafka import Producer
from tests.stack.programs import load
from tests.stack.stack import PORTS, UP_SECONDS, Stack, docker, free_ports, load_yaml, wait_until

from streamtable_spark import session

ROOT = Path(__file__).resolve().parents[2]
SCHEDULED = [
    each
    for path in sorted((ROOT / "infra/kubernetes/components/spark").glob("*.yaml"))
    for each in yaml.safe_load_all(path.read_text())
    if each["kind"] == "CronJob"
]
COMPOSE: dict[str, dict[str, Any]] = load_yaml((ROOT / "docker-compose.yml").read_text())["services"]
ON_REQUEST = ("spark-maintain", "spark-rebuild", "spark-reconcile")
IMAGE_MB = 1_400
REBUILT = (ROOT / "infra/rebuilt.yaml").read_text()


@pytest.mark.parametrize("thing", SCHEDULED, ids=lambda thing: str(thing["metadata"]["name"]))
def test_a_scheduled_job_has_no_rights_bounded_memory_and_never_runs_twice(thing: dict[str, Any]) -> None:
    assert thing["spec"]["concurrencyPolicy"] == "Forbid"
    template = thing["spec"]["jobTemplate"]["spec"]["template"]
    assert template["metadata"]["labels"] == thing["metadata"]["labels"]
    pod = template["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"].items() >= {"runAsNonRoot": True, "runAsUser": 10001}.items()
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}


def test_jobs_of_the_stack_share_a_volume_and_start_on_request_but_for_the_schedule() -> None:
    assert COMPOSE["spark-etl"]["profiles"] == ["spark"]
    for name in ("spark-etl", *ON_REQUEST):
        service = COMPOSE[name]
        assert service["volumes"] == ["lake:/var/lib/streamtable"]
        assert any("exec" in each for each in service["tmpfs"]), "Java runs what it takes out of its jars"
        assert service["environment"]["SERVICEKIT_RUNS_TOPIC"] == "streamtable-runs"
        assert (service["profiles"] == ["spark-jobs"]) == (name in ON_REQUEST)


def test_spark_submit_is_set_to_what_jobs_set_by_themselves() -> None:
    lines = (ROOT / "infra/docker/spark.conf").read_text().splitlines()
    reported = dict(line.split() for line in lines if not line.startswith("#"))
    meaning = session._MEANING
    shared = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
    assert {name: reported[name] for name in shared} == {name: meaning[name] for name in shared}


def test_what_a_rebuild_writes_has_the_topics_that_its_group_would_have() -> None:
    declared = yaml.safe_load(REBUILT)
    everybody = yaml.safe_load((ROOT / "infra/topics.yaml").read_text())
    assert declared["defaults"] == everybody["defaults"]
    for name, group in declared["groups"].items():
        other = everybody["groups"][name.removesuffix("-v2")]
        assert group == {what: other[what] for what in ("inputs", "joins", "once") if what in other}


@pytest.fixture(scope="module")
def spark_image(images: None) -> None:
    """Built from this checkout; quick if nothing has changed."""
    subprocess.run(
        [sys.executable, "-m", "infra.images", "streamtable-spark"], cwd=ROOT, check=True, timeout=1200
    )


@pytest.fixture(scope="module")
def stack(spark_image: None) -> Iterator[Stack]:
    """Clicks, an ETL every few seconds, and the console."""
    made = Stack(f"streamtable-spark-{os.getpid()}", free_ports(PORTS), {"STACK_SPARK_EVERY": "5"})
    services = ("click-count-emitter", "click-count-processor", "spark-etl", "console")
    try:
        made.compose("up", "--detach", "--wait", "--wait-timeout", str(UP_SECONDS), *services)
        yield made
    finally:
        made.compose("--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", "40")


def metrics(stack: Stack) -> dict[str, float]:
    (etl,) = stack.containers("spark-etl")
    program = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8080/metrics').read().decode())"
    lines = docker("exec", etl, "python", "-c", program).splitlines()
    return {
        line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line and line[0] != "#"
    }


def send(stack: Stack, count: int) -> None:
    clicks = [{"user_id": f"user-{number % 7}", "url": "https://example.org/"} for number in range(count)]
    httpx.post(f"{stack.url('STACK_CLICK_EMITTER_PORT')}/clicks", json=clicks, timeout=60).raise_for_status()
    wait_until("all clicks are applied", lambda: stack.lag("click-count") == 0)


@pytest.mark.stack
@pytest.mark.timeout(900)
def test_the_image_is_of_bounded_size_and_runs_as_a_number_without_rights(spark_image: None) -> None:
    tag = next(each.tag for each in load("infra/images.py").IMAGES if each.kind == "spark")
    (image,) = json.loads(docker("image", "inspect", tag))
    assert image["Size"] < IMAGE_MB * 1e6
    assert image["Config"]["User"] == "10001:10001"
    network = ("--network", "none", "--hostname", "localhost")  # Java asks for the address of its own name
    bare = ("run", "--rm", "--read-only", *network, "--cap-drop", "ALL", "--tmpfs", "/tmp:exec")
    assert docker(*bare, tag, "--help").startswith("usage: streamtable-spark JOB")
    started = "from streamtable_spark.session import connect; print(connect('look').range(5).count())"
    assert docker(*bare, "--entrypoint", "python", tag, "-c", started).strip() == "5"


@pytest.mark.stack
@pytest.mark.timeout(900)
def test_the_schedule_fills_the_lake_and_serves_its_metrics(stack: Stack) -> None:
    send(stack, 70)
    records = 'streamtable_job_success_seconds{group="",job_name="etl"}'
    wait_until("a run of the ETL has gone well", lambda: metrics(stack).get(records, 0) > 0)
    (etl,) = stack.containers("spark-etl")
    found = stack.inspect(etl)
    assert found["HostConfig"]["ReadonlyRootfs"] is True
    assert docker("exec", etl, "ls", "/var/lib/streamtable/lake/bronze/_delta_log")


@pytest.mark.stack
@pytest.mark.timeout(900)
def test_an_audit_on_request_leaves_its_report_in_the_volume_and_a_rebuild_a_table(
    stack: Stack, tmp_path: Path
) -> None:
    send(stack, 30)
    said = stack.compose("run", "--rm", "spark-reconcile", "--group", "click-count")
    assert said.strip() == ""
    stack.compose("cp", "spark-etl:/var/lib/streamtable/click-count.audit", str(tmp_path))
    report = json.loads((tmp_path / "click-count.audit/report.json").read_text())
    assert (report["differences"], report["events"] >= 30) == (0, True)
    assert "All rows are as the inputs say." in (tmp_path / "click-count.audit/report.html").read_text()
    (tmp_path / "rebuilt.yaml").write_text(REBUILT)
    with stack.ours("streamtable", "topics", "apply", "--file", str(tmp_path / "rebuilt.yaml")) as applied:
        assert applied.wait(60) == 0
    stack.compose("run", "--rm", "spark-rebuild", "--group", "click-count", "--as", "click-count-v2")
    with stack.ours("streamtable", "group", "compare", "click-count", "click-count-v2", "--json") as compared:
        answer, _ = compared.communicate(timeout=120)
    assert compared.returncode == 0, answer
    runs = {name for name in metrics(stack) if name.startswith("streamtable_job_success_seconds")}
    assert {re.findall(r'job_name="(\w+)"', name)[0] for name in runs} == {"etl", "reconcile", "rebuild"}


def write_strange_rows(stack: Stack) -> None:
    """Write into each partition of the table's topic, as only its processor should."""
    producer = Producer(
        {"enable.idempotence": True, "bootstrap.servers": f"127.0.0.1:{stack.ports['STACK_KAFKA_PORT']}"}
    )
    table = "click-count-table"
    for partition in producer.list_topics(table, 20).topics[table].partitions:
        producer.produce(table, b"\x02", f"nobody-{partition}", partition)
    assert producer.flush(60) == 0


@pytest.mark.stack
@pytest.mark.timeout(900)
def test_an_audit_that_finds_rows_of_others_ends_with_1_and_the_console_shows_all_runs(stack: Stack) -> None:
    write_strange_rows(stack)
    send(stack, 14)  # an audit reads the table up to what was committed
    audit = ("run", "--rm", "spark-reconcile", "--group", "click-count")
    done = stack.tried(*audit)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "nobody-" in done.stdout

    def shown() -> set[tuple[str, str]]:
        return {(run["job"], run["state"]) for run in stack.console("/api/runs")["runs"]}

    expected = {("etl", "done"), ("reconcile", "done"), ("reconcile", "different"), ("rebuild", "done")}
    wait_until("the console shows all runs", lambda: expected <= shown())
