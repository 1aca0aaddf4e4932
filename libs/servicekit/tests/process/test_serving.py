import subprocess
import sys

import pytest

from servicekit.process.serving import _worker, serve_commands
from streamtable import Settings
from streamtable.errors import ConfigurationError


def test_each_worker_has_its_own_id_and_port() -> None:
    settings = Settings.from_environment(
        {"STREAMTABLE_INSTANCE_ID": "a", "STREAMTABLE_METRICS_ADDRESS": "127.0.0.1:9000"}
    )
    workers = [_worker(settings, ["click_count.main", "processor"], number) for number in (1, 2)]
    assert [worker.environment for worker in workers] == [
        {"STREAMTABLE_INSTANCE_ID": "a-1", "STREAMTABLE_METRICS_ADDRESS": "127.0.0.1:9000"},
        {"STREAMTABLE_INSTANCE_ID": "a-2", "STREAMTABLE_METRICS_ADDRESS": "127.0.0.1:9001"},
    ]
    assert list(workers[0].command[1:5]) == ["-m", "click_count.main", "processor", "--parent"]


def test_workers_with_port_0_share_no_port() -> None:
    settings = Settings.from_environment(
        {"STREAMTABLE_INSTANCE_ID": "a", "STREAMTABLE_METRICS_ADDRESS": "127.0.0.1:0"}
    )
    assert _worker(settings, ["x"], 1).environment == {"STREAMTABLE_INSTANCE_ID": "a-1"}


@pytest.mark.parametrize(
    ("name", "value", "own"),
    [
        ("STREAMTABLE_INSTANCE_ID", "x" * 99, f"STREAMTABLE_INSTANCE_ID={'x' * 99}-1"),
        ("STREAMTABLE_METRICS_ADDRESS", "127.0.0.1:65535", "STREAMTABLE_METRICS_ADDRESS=127.0.0.1:65536"),
    ],
)
def test_an_id_or_a_port_that_several_processes_cannot_have_is_refused_before_one_starts(
    name: str, value: str, own: str
) -> None:
    settings = Settings.from_environment({name: value})
    with pytest.raises(ConfigurationError, match=f"process . of several would have .*{own}"):
        serve_commands(settings, [[__name__]] * 2)


def test_a_service_without_a_view_does_not_import_grpc() -> None:
    program = "import sys, servicekit.process.table_service; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
