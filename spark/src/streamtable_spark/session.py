"""The Spark session: quiet, in UTC, and with the connectors' jars that `make setup SPARK=1` has fetched.

A job that was submitted to a cluster keeps the settings of its submission (master, memory, jars). One that was started as
a plain Python program runs on this machine, in this process's own Java.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, Final, TypeAlias

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # Spark's bridge to Java ships no types
from pyspark.sql import SparkSession

from streamtable_spark.errors import ConfigurationError

OLDEST_JAVA: Final = 17
MEMORY: Final = re.compile(r"[1-9][0-9]*[mg]")
BRIEF: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""With one compiler a JVM reserves 48 MB for compiled code. Spark fills these within minutes, and then a sixth of the CPU time
is spent on discarding and recompiling code: so it gets the 240 MB that a JVM reserves with both."""
PACKAGE: Final = files("streamtable_spark")
JARS_VARIABLE: Final = "SPARK_CONNECTOR_JARS"
PACKAGES: Final = {
    "org.apache.spark.sql.kafka010.KafkaSourceProvider": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
    "org.apache.spark.sql.avro.AvroFileFormat": "org.apache.spark:spark-avro_2.13:4.1.1",
    "io.delta.sql.DeltaSparkSessionExtension": "io.delta:delta-spark_4.1_2.13:4.3.1",
}
"""The Maven package that brings each class without which the jobs do not work, in the versions of `pom.xml`."""
LATE: Final = "-XX:Tier4InvocationThreshold=30000 -XX:Tier4MinInvocationThreshold=10000 -XX:Tier4CompileThreshold=90000 -XX:Tier4BackEdgeThreshold=240000"
"""The second compiler (C2) begins at six times as many calls and loops as usual. A job of minutes runs much of its code, Spark's
planner first of all, a few thousand times: to compile that took a third of the CPU time of the ETL, beside tasks on the same cores."""
DICTIONARY_BYTES: Final = 64 * 1024
"""The largest dictionary of a column in a Parquet file. Columns with few values have one; to look up each of the many values of a
key, in a dictionary that no cache holds, takes as long as the rest of writing the record."""
SHUFFLE: Final = "spark.sql.shuffle.partitions"
LOG_LEVEL: Final = "spark.log.level"
SUBMITTED_VARIABLE: Final = "PYSPARK_GATEWAY_PORT"
_Options: TypeAlias = dict[str, bool | float | int | str | None]
_MEANING: Final[_Options] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Else a task sorts its rows by the columns of a partition before it writes them, though nearly all have one day.
    "spark.sql.maxConcurrentOutputFileWriters": "4",
    # A number of 8 bytes; Spark's usual form is one of 12 that older tools needed, and costs a tenth of writing bronze.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.hadoop.parquet.dictionary.page.size": str(DICTIONARY_BYTES),
    # All but kafka of Spark's list: else each record of a topic that is read in batch becomes an object of Scala and back.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""The options that affect results: the same on this machine and on a cluster."""


@dataclass(frozen=True)
class Local:
    """The settings of a job that was not submitted to a cluster.

    Attributes:
        cores: The number of threads that run tasks.
        memory: The heap of the JVM: a number with m or g.
        partitions: The number of shuffle partitions; more than cores only costs time at this size.
        scratch: The folder for spilled data and for tables without a path; None for the temporary folder.
        brief: Whether the session lives for minutes only, as in tests: the JVM then uses only its first compiler (C1), which
            saves much CPU time, see `BRIEF`.
    """

    cores: int = 2
    memory: str = "700m"
    partitions: int = 4
    scratch: Path | None = None
    brief: bool = False

    def __post_init__(self) -> None:
        for number, what in ((self.cores, "cores"), (self.partitions, "shuffle partitions")):
            if number < 1:
                raise ConfigurationError(f"{number} {what}: at least 1 is needed")
        if not MEMORY.fullmatch(self.memory):
            raise ConfigurationError(
                f"memory {self.memory!r}: a whole number with m or g is needed, such as 512m or 2g"
            )


def connect(name: str, local: Local | None = None) -> SparkSession:
    """Return the session of this process, and create it if there is none.

    Args:
        name: The name of the job, as a cluster shows it.
        local: The settings to use unless the job was submitted to a cluster.

    Raises:
        ConfigurationError: There is no Java that Spark can use, or the jars were not fetched.
    """
    builder = SparkSession.Builder().appName(name).config(map=_MEANING)
    if SUBMITTED_VARIABLE not in os.environ:
        check_java()
        # Read once, by the script that starts Java: without it that script prints which settings it falls back to.
        os.environ.setdefault("SPARK_CONF_DIR", str(PACKAGE))
        # Else its workers run the first python3 on the path, without the packages that are installed here.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # Else each thread of Java, its compilers' first of all, keeps memory of its own that it has freed.
        os.environ.setdefault("MALLOC_ARENA_MAX", "2")
        builder = builder.config(map=_place(local or Local(), jars_folder(os.environ)))
    session = builder.getOrCreate()
    if current_thread() is main_thread():
        # PySpark's own handler cancels all jobs first, and the program then ends with the error of a failed job.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    context, given = session.sparkContext, session.sparkContext.getConf()
    if not given.contains(LOG_LEVEL):
        context.setLogLevel("ERROR")
    if SUBMITTED_VARIABLE in os.environ:
        check_packages(session)
        if not given.contains(SHUFFLE):
            # Spark's 200 are for a large cluster: elsewhere most of them have nothing to do.
            session.conf.set(SHUFFLE, str(max(4, 2 * context.defaultParallelism)))
    return session


def check_packages(session: SparkSession) -> None:
    """Check that a session has the connectors.

    Raises:
        ConfigurationError: One is missing; the error names the option of spark-submit that adds it.
    """
    java: Any = session._jvm  # noqa: SLF001 - only Java knows whether a class is there
    missing = [package for name, package in PACKAGES.items() if not _has(java, name)]
    if missing:
        session.stop()
        raise ConfigurationError(
            f"Spark lacks {', '.join(each.split(':')[1] for each in missing)}: submit with --packages {','.join(missing)}, or with their jars and those that they need by --jars"
        )


def _has(java: Any, name: str) -> bool:
    try:
        java.org.apache.spark.util.Utils.classForName(name, False, False)
    except Py4JError:
        return False
    return True


def jars_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the connectors' jars: the value of SPARK_CONNECTOR_JARS, else the cache of `make setup SPARK=1`.

    Raises:
        ConfigurationError: The jars were not downloaded.
    """
    pinned = (PACKAGE / "jars.sha256").read_text()
    named = environ.get(JARS_VARIABLE)
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamtable"
    folder = Path(named) if named else cache / cache_name(pinned)
    missing = [name for name in jar_names(pinned) if not (folder / name).is_file()]
    if missing:
        raise ConfigurationError(
            f"{folder} lacks {', '.join(missing)}: `make setup SPARK=1` fetches Spark's jars"
        )
    return folder


def cache_name(pinned: str) -> str:
    """Return the name of the cache folder that holds the jars of these pins, so that changed pins are downloaded again."""
    return f"spark-jars-{hashlib.sha256(pinned.encode()).hexdigest()[:12]}"


def jar_names(pinned: str) -> list[str]:
    """Return the names of the files, from the lines that sha256sum prints."""
    return [line.rpartition("/")[2] for line in pinned.splitlines()]


def check_java() -> None:
    """Check the version of the Java that Spark would start.

    Raises:
        ConfigurationError: There is no Java, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise ConfigurationError(
            f"Spark needs Java {OLDEST_JAVA} or newer, and there is none{f' in JAVA_HOME ({home})' if home else ''}: install one (Debian, Ubuntu: openjdk-17-jre-headless)"
        )
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - Spark runs the same
    version = re.search(r'version "(\d+)', said.stderr + said.stdout)
    if version is None or int(version.group(1)) < OLDEST_JAVA:
        raise ConfigurationError(
            f"Spark needs Java {OLDEST_JAVA} or newer; {java} says: {said.stderr.strip()}"
        )


def _place(local: Local, jars: Path) -> _Options:
    """Return the options of a session on this machine."""
    scratch: _Options = {}
    if local.scratch is not None:
        scratch["spark.local.dir"] = str(local.scratch / "spill")
        scratch["spark.sql.warehouse.dir"] = str(local.scratch / "warehouse")
    return {
        "spark.master": f"local[{local.cores}]",
        "spark.driver.memory": local.memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(local.partitions),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.jars": ",".join(str(jars / name) for name in jar_names((PACKAGE / "jars.sha256").read_text())),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={PACKAGE / 'log4j2.properties'} "
        f"-XX:+UseSerialGC -XX:-UsePerfData {BRIEF if local.brief else LATE}",
        **scratch,
    }
