"""Schemathesis makes requests from the OpenAPI documents, valid and invalid ones, and judges the answers by them.

All its checks are on: no failures of the service, only statuses, content types and bodies that the document names,
valid requests accepted, invalid ones refused. FAULTS_SECONDS sets how long the long form takes for each service.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.hostile.rest_world import Service

pytestmark = pytest.mark.broker  # of its fixtures, which are asked for by their names
EXAMPLES = 2  # of each operation; the long form makes as many as its time allows
SERVICES = [
    *(
        "query",
        "emitter",
        "users",
        "statuses",
        "tweets",
        "reaches",
        "messages",
        "movements",
        "stocks",
        "console",
    )
]
# The bad requests of the others have tests of their own, one by one: test_rest_requests.py, test_rest_reaches_and_console.py.
SHORT = ["statuses", "tweets", "messages"]
SEED = os.environ.get("FAULTS_SEED", "1")
LONG_SECONDS = os.environ.get("FAULTS_SECONDS", "120")
# Streams of events, which tests/hostile/test_rest_requests.py and slow clients ask for; and what takes an Elasticsearch.
LEFT_OUT = "watch_.*|search_.*"


def examine(service: Service, folder: Path, *options: str) -> None:
    """Run Schemathesis against a service; its report is shown when it finds something."""
    hooks = Path(__file__).with_name("schemathesis_hooks.py")
    program = Path(sys.executable).with_name("schemathesis")
    config = Path(__file__).with_name("schemathesis.toml")
    common = ["--checks", "all", "--exclude-operation-id-regex", LEFT_OUT, "--warnings", "off", "--no-color"]
    given = [f"--header={name}: {value}" for name, value in service.headers.items()]
    done = subprocess.run(
        [program, "--config-file", config, "run", f"{service.url}/openapi.json", *common, *given, *options],
        env={
            **os.environ,
            "PYTHONPATH": str(hooks.parent),
            "SCHEMATHESIS_HOOKS": hooks.stem,
            "SCHEMATHESIS_KNOWN": json.dumps(service.known),
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout
    service.check_sound()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in SHORT else [pytest.mark.faults_long]) for name in SERVICES],
)
def test_a_service_keeps_what_its_document_says(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    options = ["--max-examples", str(EXAMPLES), "--seed", SEED, "--generation-database", "none"]
    examine(request.getfixturevalue(name), tmp_path, *options)


@pytest.mark.faults_long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SERVICES)
def test_a_service_keeps_what_its_document_says_for_long(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    options = ["--max-time", LONG_SECONDS, "--seed", SEED, "--generation-database", "none"]
    examine(request.getfixturevalue(name), tmp_path, *options)
