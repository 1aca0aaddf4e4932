"""Fetch the jars of Spark's connectors into the cache, unless they exist, and print the folder. Run by `make setup`."""

import logging
import sys
from pathlib import Path

from localkafka.errors import SetupError
from localkafka.jars import maven_jars
from streamtable_spark.session import PACKAGE, cache_name

POM = Path(__file__).resolve().parent.parent / "spark" / "pom.xml"


def main() -> None:
    """Fetch the jars and print their folder."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    pinned = (PACKAGE / "jars.sha256").read_text()
    try:
        print(maven_jars(cache_name(pinned), POM, pinned))
    except SetupError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
