"""One Spark session for all tests of this folder in a process: it takes longer to start than most of them run."""

import gc
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.tests.verbs import make

from localkafka.process import reserve_port

if TYPE_CHECKING:
    import subprocess

    from pyspark.sql import SparkSession

SMALL_DATA = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # A plan is not made again after each of its stages.
    "spark.sql.adaptive.enabled": "false",
    # Else the first `lower` of a process maps all characters there are, for seconds: ours gets hexadecimal digits.
    "spark.sql.icu.caseMappings.enabled": "false",
}
"""Plans run a few times on a few rows: to optimize them costs more than it saves. Jobs that run as programs do."""
SEARCHED_FIRST = (
    "spark-catalyst_*", "spark-sql*", "spark-core_*", "spark-*", "scala-*", "hadoop-client-*", "log4j-*", "netty-*",
    "jackson-*", "json4s-*", "parquet-*",
)  # fmt: skip
"""The jars in which most classes are found. Spark gives Java its nearly 300 jars in the order of the folder, and for each class
Java searches one after another: a fifth of the time that it computes in its first minutes."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A quiet local session with two threads."""
    # Imported here, since this file is read also where PySpark is not installed and these tests are skipped.
    from streamtable_spark.session import Local, connect  # noqa: PLC0415 - see above

    local = Local(partitions=2, brief=True, scratch=tmp_path_factory.mktemp("spark"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"--driver-class-path {searched_first()} pyspark-shell")
        session = connect("tests", local)
    for name, value in SMALL_DATA.items():
        session.conf.set(name, value)
        # Also for tasks that belong to no query, such as reading Delta's log.
        session.sparkContext.setLocalProperty(name, value)
    yield session
    session.stop()


def searched_first() -> str:
    """Return a class path of the jars in which most of Spark's classes are."""
    import pyspark  # noqa: PLC0415 - as above

    jars = Path(pyspark.__file__).parent / "jars"
    found = dict.fromkeys(path for pattern in SEARCHED_FIRST for path in sorted(jars.glob(pattern)))
    return os.pathsep.join(map(str, found))


@pytest.fixture(scope="session")
def in_vain(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[tuple[int, subprocess.Popen[str]]]":
    """An audit of a port without a broker, and the port: it asks for half a minute before it gives up."""
    with reserve_port() as held:
        port = held.getsockname()[1]
        with make("spark-reconcile", port, tmp_path_factory.mktemp("out")) as run:
            yield port, run


@pytest.fixture(autouse=True, scope="session")
def _waiting_begun(request: pytest.FixtureRequest) -> None:
    """Begin what only waits before the first test, if a later one needs it: beside the others it takes no time."""
    if any("in_vain" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("in_vain")


@pytest.fixture(autouse=True, scope="module")
def _closed_sockets() -> Iterator[None]:
    """Collect the sockets that the bridge to Java leaves open where that is expected, and not in tests of other folders."""
    yield
    sql = sys.modules.get("pyspark.sql")
    if sql is None or sql.SparkSession.getActiveSession() is None:
        return  # there is no bridge, and searching all objects takes most of a second
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need Spark, with the time that it takes to start; and let its bridge to Java leave sockets open."""
    for item in items:
        if isinstance(item, pytest.Function) and "spark" in item.fixturenames:
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))
            item.add_marker(pytest.mark.server)
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed.*socket:ResourceWarning"))
