"""Several processes of a group on one machine: started by spawn, stopped together."""

import multiprocessing
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

import structlog

from streamtable.app import stop_on_signals

log = structlog.get_logger()


def run_workers(count: int, work: Callable[[int], None], *, shutdown_timeout: float = 30.0) -> int:
    """Run `work(0)` to `work(count - 1)`, each in a process of its own, until they end or a signal comes.

    SIGTERM and SIGINT are passed on, and the workers have `shutdown_timeout` seconds to end in order. When one worker
    fails the others are stopped, so that whoever supervises this process sees a whole failure, not half a service.

    Args:
        count: at least 1.
        work: a function of a module (it is sent to the new processes by name); each call needs an instance id of its
            own, such as `f"{instance_id}-{number}"`.
        shutdown_timeout: seconds; after them a worker is killed.

    Returns:
        An exit code: 0 if all ended well.
    """
    # Spawn, not fork: a forked Kafka client loses what it has queued.
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_worker, args=(work, number), name=f"worker-{number}")
        for number in range(count)
    ]
    stopped = threading.Event()

    def stop() -> None:
        stopped.set()
        for worker in workers:
            if worker.is_alive():
                worker.terminate()

    with stop_on_signals(stop):
        for worker in workers:
            worker.start()
        while not stopped.is_set() and not any(worker.exitcode for worker in workers):
            alive = [worker.sentinel for worker in workers if worker.exitcode is None]
            if not alive:
                break
            wait(alive, timeout=0.2)
        _log_failures(workers)
        stop()
        for worker in workers:
            worker.join(shutdown_timeout)
            if worker.is_alive():
                log.error(
                    "worker did not stop in time and is killed", worker=worker.name, seconds=shutdown_timeout
                )
                worker.kill()
                worker.join()
    return 1 if any(worker.exitcode for worker in workers) else 0


def _worker(work: Callable[[int], None], number: int) -> None:
    # The terminal sends Ctrl-C to all processes: the parent passes it on as SIGTERM, once is enough.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    work(number)


def _log_failures(workers: Sequence[BaseProcess]) -> None:
    for worker in workers:
        if worker.exitcode:
            log.error("worker failed, the others are stopped", worker=worker.name, exit_code=worker.exitcode)
