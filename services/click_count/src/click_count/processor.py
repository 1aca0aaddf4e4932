"""The processor service: counts clicks, in one process or several."""

import os
import sys
from typing import Final

from click_count import topics
from click_count.runtime import Runtime, operations
from servicekit.workers import Worker, run_workers, stop_with_parent
from streamtable import Group, Processor, Settings
from streamtable.settings import Address

HANDLERS: Final = {"count": topics.by_count, "record": topics.by_record}


def process(runtime: Runtime, group: Group[str, int], parent: int | None = None) -> int:
    """Work in this process until stopped.

    Args:
        runtime: settings and cluster.
        group: what to do.
        parent: id of the process without which this one is to stop.
    """
    processor = Processor.from_settings(group, runtime.settings, metrics=runtime.measured)
    if parent is not None:
        stop_with_parent(processor.stop, parent)
    with operations(runtime, "processor", lambda: processor.ready):
        processor.run()
    return 0


def supervise(settings: Settings, handler: str, workers: int) -> int:
    """Run several processes of the group; each has an instance id, and a port for its metrics, of its own."""
    return run_workers(
        [_worker(settings, handler, number) for number in range(1, workers + 1)],
        stop_seconds=settings.shutdown_timeout + 5,
    )


def _worker(settings: Settings, handler: str, number: int) -> Worker:
    command = [sys.executable, "-m", "click_count.main", "processor", "--handler", handler]
    environment = {"STREAMTABLE_INSTANCE_ID": f"{settings.instance_id}-{number}"}
    address = settings.metrics_address
    if address is not None and address.port != 0:
        environment["STREAMTABLE_METRICS_ADDRESS"] = str(Address(address.host, address.port + number - 1))
    return Worker([*command, "--parent", str(os.getpid())], environment)
