"""The jobs by spark-submit: the archive with `--py-files`, and the connectors with `--jars`."""

import ast
import json
import os
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from contracts.records import USER_CLICK, UserClick
from localkafka.broker import Broker
from localkafka.topics import create_topics, delete_topics
from streamtable import Avro
from streamtable_spark.archive import pack
from streamtable_spark.session import PACKAGES, jars_folder

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "docs/how-to" / f"{name}.md" for name in ("run-the-etl", "rebuild-a-table", "audit-a-table")]
TOPICS = (
    "user-clicks", "count-table", "count-ids", "count-dead-letters", "count-retry",
    "count-v2-table", "count-v2-ids", "count-v2-dead-letters", "count-v2-retry",
)  # fmt: skip
GRAPH = ("--graph", "click_count.topics:by_record")
Submit = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.timeout(900)]


def test_the_archive_has_each_package_of_ours_that_another_one_in_it_imports(archive: Path) -> None:
    ours = {each.parent.name for each in ROOT.glob("libs/*/src/*/__init__.py")}
    imported = set()
    with zipfile.ZipFile(archive / "streamtable-spark.zip") as packed:
        names = packed.namelist()
        for name in names:
            if name.endswith(".py"):
                for node in ast.parse(packed.read(name)).body:
                    if isinstance(node, ast.ImportFrom):
                        imported.add(str(node.module).partition(".")[0])
                    elif isinstance(node, ast.Import):
                        imported |= {alias.name.partition(".")[0] for alias in node.names}
    assert imported & ours <= {name.partition("/")[0] for name in names}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    pack(folder)
    return folder


@pytest.fixture(scope="module")
def submit(archive: Path, broker: Broker) -> Submit:
    """Submit a job to a Spark of one process, and wait for its end. Its output includes its standard error."""
    scripts = Path(sys.executable).parent

    def run(*arguments: str, jars: str | None = None) -> subprocess.CompletedProcess[str]:
        connectors = (
            jars if jars is not None else ",".join(map(str, sorted(jars_folder(os.environ).glob("*.jar"))))
        )
        command = [
            str(scripts / "spark-submit"), "--master", "local[2]", "--driver-memory", "1g",
            *(["--jars", connectors] if connectors else []),
            "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.bindAddress=127.0.0.1",
            "--conf", "spark.driver.host=127.0.0.1",
            "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
            "--py-files", str(archive / "streamtable-spark.zip"), str(archive / "streamtable-spark.py"), *arguments,
        ]  # fmt: skip
        environment = {
            **os.environ,
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "STREAMTABLE_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        }
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=600
        )

    return run


@pytest.fixture(scope="module")
def clicks(broker: Broker) -> Iterator[int]:
    """Send clicks of three users, and yield their number."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    compacted = {"cleanup.policy": "compact"}
    topics = [
        NewTopic(name, 3, config=compacted if name.endswith(("-table", "-ids")) else {}) for name in TOPICS
    ]
    create_topics(admin, topics)
    producer = Producer(
        {"enable.idempotence": True, "bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    )
    for number in range(30):
        click = UserClick(id=f"{number}", user_id=f"user-{number % 3}", url="/", at=number)
        producer.produce("user-clicks", Avro(USER_CLICK).encode(click), click["user_id"])
    assert producer.flush(60) == 0
    yield 30
    delete_topics(admin, TOPICS)


@pytest.mark.broker
@pytest.mark.faults_long("a start of Spark by its own script")
def test_a_submitted_rebuild_runs_the_handlers_of_a_group_in_its_tasks(
    submit: Submit, clicks: int, tmp_path: Path
) -> None:
    manifest = tmp_path / "manifest.json"
    done = submit("rebuild", "--group", "count", "--as", "count-v2", *GRAPH, "--manifest", str(manifest))
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    found: dict[str, Any] = json.loads(manifest.read_text())
    assert found["state"] == "done"
    assert (found["counts"]["events"], sum(each["rows"] for each in found["table"].values())) == (clicks, 3)


@pytest.mark.broker
@pytest.mark.faults_long("each takes a start of Spark")
def test_every_job_can_be_submitted_and_says_which_option_is_missing(
    submit: Submit, clicks: int, tmp_path: Path
) -> None:
    lake = f"--lake={tmp_path}/lake"
    demo = ("--graph", "streamtable_spark.demo:LAKE")
    done = submit("etl", lake, *demo, "--topics", "user-clicks")
    assert json.loads(done.stdout.strip().splitlines()[-1])["user-clicks"] == clicks, (
        done.stdout[-2_000:] + done.stderr[-2_000:]
    )
    days = ("--from", "2020-01-01", "--to", "2100-01-01")
    done = submit("backfill", lake, *demo, "--topics", "user-clicks", *days)
    assert json.loads(done.stdout.strip().splitlines()[-1])["user-clicks"] == clicks, (
        done.stdout[-2_000:] + done.stderr[-2_000:]
    )
    assert submit("maintain", lake).returncode == 0
    done = submit("reconcile", "--group", "count", *GRAPH, "--report", str(tmp_path / "audit"))
    assert (done.returncode, "has no committed offsets" in done.stdout) == (2, True)
    done = submit("reach", lake)
    assert "has nothing of tweets" in done.stdout
    checkpoint = f"--checkpoint={tmp_path}/checkpoint"
    done = submit("structured", "--output", "count-table", checkpoint)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    done = submit("etl", lake, *demo, "--topics", "user-clicks", jars="")
    assert done.returncode == 2
    assert "--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3" in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.stem))
def test_the_pages_name_the_packages_that_the_jobs_need(page: Path) -> None:
    (command,) = [part for part in page.read_text().split("```") if part.strip().startswith("spark-submit")]
    words = shlex.split(command.replace("\\\n", " "))
    assert words[words.index("--packages") + 1].split(",") == list(PACKAGES.values())
    assert words[words.index("--py-files") + 1] == "dist/streamtable-spark.zip"
    assert "dist/streamtable-spark.py" in words
