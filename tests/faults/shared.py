"""A process that holds a share of a table: `shared.py SERVERS PREFIX STATE ADDRESS REPLICAS`. It writes "ready" when it has it."""

import signal
import sys
import threading
from pathlib import Path

from streamtable import App, Long, String, Table
from streamtable_query import SharedView


def main(servers: str, prefix: str, state: str, address: str, replicas: str) -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    table = Table(f"{prefix}g-table", String(), Long(), group=f"{prefix}g")
    with SharedView(
        App(servers, Path(state)), table, f"{prefix}readers", address, replicas=int(replicas), listen=address
    ) as view:
        view.wait_ready(120)
        print("ready", flush=True)
        stopped.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
