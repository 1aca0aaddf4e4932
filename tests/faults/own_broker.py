"""A broker that one test alone uses, and may kill."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.faults.arena import BROKER_SETTINGS

from localkafka.broker import Broker

# A single broker that restarts with transactions to complete knows no leaders yet, treats their partitions as deleted,
# and leaves these transactions open for ever: only `kafka-transactions.sh abort` helps.
MARKERS_LOST = b"these partitions are likely deleted already"
TRIES = 3


@contextmanager
def own_broker(data: Path | None = None) -> Iterator[Broker]:
    """A broker to be attacked; its data is in a new folder by default."""
    with ExitStack() as stack:
        folder = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamtable-faults-")))
        broker = Broker(folder, overrides=BROKER_SETTINGS, brief=True)
        stack.callback(broker.close)
        stack.callback(broker.kill)
        broker.start()
        yield broker


def on_own_broker(attack: Callable[[Broker], str]) -> str:
    """Return the result of an attack on a broker, made on a new one if Kafka itself has lost transaction markers."""
    for tries_left in reversed(range(TRIES)):
        with own_broker() as broker:
            try:
                return attack(broker)
            except AssertionError:
                if not tries_left or MARKERS_LOST not in broker.log_file.read_bytes():
                    raise
    raise AssertionError("each try returns or raises")
