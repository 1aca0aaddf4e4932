"""Kafka's classes as Java has them in memory, kept in a file that a broker maps instead of reading its jars again.

It takes half of the CPU time out of a start. `python -m localkafka.classes` makes it, once per machine and Java; a
broker does without where there is none, and Java where it does not fit.
"""

import logging
import sys
import tempfile
from pathlib import Path

from localkafka.broker import Broker
from localkafka.cache import cached
from localkafka.errors import BrokerFailed, SetupError
from localkafka.jars import class_archive
from localkafka.java import find_java

log = logging.getLogger(__name__)


def make(archive: Path) -> None:
    """Run a broker for a moment, and let its Java write what it has loaded. One that cannot leaves no file.

    Raises:
        SetupError: there are no jars or no Java.
        BrokerFailed: the broker does not start.
    """

    def build(target: Path) -> None:
        options = [f"-XX:ArchiveClassesAtExit={target / archive.name}"]
        with (
            tempfile.TemporaryDirectory(prefix="streamtable-kafka-") as folder,
            Broker(Path(folder), brief=True, java_options=options) as broker,
        ):
            broker.stop(timeout=120)  # that is when it is written

    cached(archive.parent.name, build)


def main() -> None:
    """Make it, unless it is there; print the folder. A machine on which no broker starts can still be set up."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        archive = class_archive(find_java())
        make(archive)
    except SetupError as error:
        sys.exit(str(error))
    except BrokerFailed as error:
        log.warning("Kafka's classes are not kept, as no broker starts here: %s", error)
    else:
        print(archive.parent)  # noqa: T201 - what this command is for


if __name__ == "__main__":
    main()
