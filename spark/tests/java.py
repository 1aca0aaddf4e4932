"""A quick start of Spark's Java in tests. Each test that runs a job as a program starts one, and each worker its own for the others.

Spark gives Java its nearly 300 jars in the order of their folder, and Java searches one after another for each class: so the
jars in which most classes are come first. And an archive (class data sharing), which Java maps instead of reading and checking
the classes, saves another third of the CPU time of a start. `python -m spark.tests.java` makes it, once per virtual environment and
Java. Java starts without it if there is none, and ignores one that does not fit.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

SEARCHED_FIRST = (
    "spark-catalyst_*", "spark-sql*", "spark-core_*", "spark-*", "scala-*", "hadoop-client-*", "log4j-*", "netty-*",
    "jackson-*", "json4s-*", "parquet-*",
)  # fmt: skip
OPTIONS = "SPARK_SUBMIT_OPTS"
BRIEF = "-XX:TieredStopAtLevel=1"
"""Tests live for seconds: only Java's first compiler works."""


def start_quickly(environ: MutableMapping[str, str]) -> None:
    """Set the variables that make Spark's Java start quickly, also in the programs that inherit them."""
    first = searched_first()
    environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-class-path {first} pyspark-shell"
    # No such folder: Java makes no archive if a folder with files is on its class path.
    environ["SPARK_CONF_DIR"] = str(Path(sys.prefix) / "spark-conf")
    environ[OPTIONS] = BRIEF
    archive = archive_of(first)
    if archive is not None and archive.is_file():
        environ[OPTIONS] = f"{BRIEF} -XX:SharedArchiveFile={archive} -Xlog:cds*=error"


def searched_first() -> str:
    """Return a class path of the jars in which most of Spark's classes are."""
    import pyspark  # noqa: PLC0415 - it may not be installed

    jars = Path(pyspark.__file__).parent / "jars"
    found = dict.fromkeys(path for pattern in SEARCHED_FIRST for path in sorted(jars.glob(pattern)))
    return os.pathsep.join(map(str, found))


def archive_of(class_path: str) -> Path | None:
    """Return the archive for this machine's Java, which may not exist, and these jars; None if there is no Java."""
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    if found is None or not Path(found).exists():
        return None
    java = Path(found).resolve()
    made_with = f"{java} {java.stat().st_mtime_ns} {class_path}"
    return Path(sys.prefix) / "spark-classes" / f"{hashlib.sha256(made_with.encode()).hexdigest()[:12]}.jsa"


def main() -> None:
    """Make the archive unless it exists, and print its path."""
    start_quickly(os.environ)
    archive = archive_of(searched_first())
    if archive is None:
        print("Spark's classes are not archived, as there is no Java")  # noqa: T201 - the output of this command
        return
    if not archive.is_file():
        archive.parent.mkdir(exist_ok=True)
        for former in archive.parent.iterdir():
            former.unlink()
        with tempfile.TemporaryDirectory(prefix="streamtable-spark-") as folder:
            _run(Path(folder), archive)
    print(archive if archive.is_file() else "this Java makes no archive of classes")  # noqa: T201 - the same


def _run(folder: Path, archive: Path) -> None:
    """Write and read a table of Delta in a Java that writes the archive when it exits. It appears once it is complete."""
    from pyspark import SparkContext  # noqa: PLC0415 - it may not be installed

    from streamtable_spark.session import Local, connect  # noqa: PLC0415 - the same

    written = archive.with_suffix(".written")
    os.environ[OPTIONS] = f"{BRIEF} -XX:ArchiveClassesAtExit={written} -Xlog:cds*=off"
    spark = connect("classes", Local(partitions=2, scratch=folder, brief=True))
    table = str(folder / "table")
    rows = spark.createDataFrame([(number, str(number)) for number in range(100)], "number int, text string")
    rows.write.format("delta").save(table)
    spark.read.format("delta").load(table).groupBy("text").count().collect()
    spark.stop()
    java: Any = SparkContext._gateway
    java.shutdown()
    java.proc.stdin.close()
    java.proc.wait(timeout=120)
    if written.is_file():
        written.rename(archive)


if __name__ == "__main__":
    main()
