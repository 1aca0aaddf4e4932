import subprocess
import sys

from servicekit.process.serving import _worker
from streamtable import Settings


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


def test_a_service_without_a_view_does_not_import_grpc() -> None:
    program = "import sys, servicekit.process.table_service; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
