"""The tables of a lake: Delta, or plain Parquet. Writing a batch a second time changes nothing.

Delta notes in each commit which batch it was, in one step with the data; Parquet keeps each batch in a folder of its own,
which a repetition replaces as a whole.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Final, Protocol, TypeVar
from urllib.parse import unquote

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # Spark's bridge to Java ships no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from streamtable_spark.errors import RetryLater
from streamtable_spark.jobs.files import Files

T = TypeVar("T")

Reached = Callable[[str], None]
"""Called with the name of each step that is done, for tests."""

OPTIMIZE: Final = "spark.databricks.delta.optimize"
TRIES: Final = 5
PAUSE_S: Final = 0.5
# Parts of the errors that a job gets when another one has changed its tables meanwhile.
DISTURBED: Final = (
    "DELTA_CONCURRENT",
    "DELTA_METADATA_CHANGED",
    "FILE_NOT_EXIST",
    "PATH_NOT_FOUND",
    "FileNotFoundException",
)


class Tables(Protocol):
    """The tables of a lake in one format; a table's name is its folder's below the lake's."""

    def exists(self, name: str) -> bool: ...

    def read(self, name: str) -> DataFrame: ...

    def append(self, name: str, rows: DataFrame, batch: int) -> None:
        """Add the rows of a batch, unless they are there already. They have the columns `day` and `batch`."""
        ...

    def overwrite(self, name: str, rows: DataFrame) -> None:
        """Replace a table as a whole."""
        ...

    def sizes(self, name: str) -> dict[str, int]:
        """The bytes of each file that holds rows of the table as it is now, by its path in the table's folder."""
        ...


class DeltaTables:
    """Delta tables: a read sees one version, also while another job writes; earlier versions can be read too.

    Args:
        spark: The Spark session.
        folder: The folder of the lake.
        writer: The id under which Delta records batch numbers (`txnAppId`); another one for each sequence of numbers.
    """

    def __init__(self, spark: SparkSession, folder: str, writer: str) -> None:
        self._spark, self._folder, self._writer = spark, folder, writer
        self._files = Files(spark)

    def path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def exists(self, name: str) -> bool:
        return self._files.exists(f"{self.path(name)}/_delta_log")

    def read(self, name: str) -> DataFrame:
        return self._spark.read.format("delta").load(self.path(name))

    def append(self, name: str, rows: DataFrame, batch: int) -> None:
        (
            rows.write.format("delta")
            .mode("append")
            .partitionBy("day")
            .option("mergeSchema", "true")
            .option("txnAppId", self._writer)
            .option("txnVersion", batch)
            .save(self.path(name))
        )

    def overwrite(self, name: str, rows: DataFrame) -> None:
        rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(self.path(name))

    def replace(self, name: str, rows: DataFrame, where: str) -> None:
        """Put these rows in the place of those that fulfil a condition, all at once; without a table, make it."""
        writer = rows.write.format("delta").mode("overwrite").partitionBy("day")
        if self.exists(name):
            writer = writer.option("replaceWhere", where)
        writer.option("mergeSchema", "true").save(self.path(name))

    def upsert(self, name: str, rows: DataFrame, keys: Sequence[str]) -> None:
        """Put rows in the place of those with the same keys, and add those with new ones; a key may be null."""
        if not self.exists(name):
            rows.write.format("delta").mode("errorifexists").save(self.path(name))
            return
        rows.createOrReplaceTempView("changed_rows")
        same = " AND ".join(f"old.`{key}` <=> new.`{key}`" for key in keys)
        self._spark.sql(
            f"MERGE INTO delta.`{self.path(name)}` old USING changed_rows new ON {same} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    def sizes(self, name: str) -> dict[str, int]:
        there = self._files.sizes(self.path(name))
        files = [unquote(uri).rpartition(f"{self.path(name)}/")[2] for uri in self.read(name).inputFiles()]
        return {file: there[file] for file in files if file in there}

    def compact(self, name: str, size: int) -> int:
        """Write files that are smaller than `size` bytes together, day by day. Returns how many came out."""
        with self._set(f"{OPTIMIZE}.minFileSize", str(size)), self._set(f"{OPTIMIZE}.maxFileSize", str(size)):
            row = self._spark.sql(f"OPTIMIZE delta.`{self.path(name)}`").first()
        assert row is not None
        return int(row["metrics"]["numFilesAdded"])

    def expired(self, name: str, days: int) -> list[str]:
        """The files that no version of the last `days` days needs, by their paths in the table's folder."""
        rows = self._vacuum(name, f"RETAIN {days * 24} HOURS DRY RUN").collect()
        return sorted(unquote(row["path"]).rpartition(f"{self.path(name)}/")[2] for row in rows)

    def expire(self, name: str, days: int) -> None:
        """Delete these files."""
        self._vacuum(name, f"RETAIN {days * 24} HOURS")

    def keep(self, name: str, days: int) -> None:
        """Set for how many days versions are kept: otherwise Delta forgets which files an earlier one needs."""
        required = {
            f"delta.{what}Duration": f"interval {days} days"
            for what in ("deletedFileRetention", "logRetention")
        }
        rows = self._spark.sql(f"SHOW TBLPROPERTIES delta.`{self.path(name)}`").collect()
        if not required.items() <= {row["key"]: row["value"] for row in rows}.items():
            said = ", ".join(f"'{key}' = '{value}'" for key, value in required.items())
            self._spark.sql(f"ALTER TABLE delta.`{self.path(name)}` SET TBLPROPERTIES ({said})")

    def _vacuum(self, name: str, how: str) -> DataFrame:
        tasks = str(self._spark.sparkContext.defaultParallelism)
        with (
            # Else Delta takes what the table's properties say, and refuses less: how little is safe, the job's arguments say.
            self._set("spark.databricks.delta.vacuum.retentionWindowIgnore.enabled", "false"),
            self._set("spark.databricks.delta.retentionDurationCheck.enabled", "false"),
            # In how many tasks files are listed: Spark means at most so many, and Delta starts all 10,000.
            self._set("spark.sql.sources.parallelPartitionDiscovery.parallelism", tasks),
        ):
            return self._spark.sql(f"VACUUM delta.`{self.path(name)}` {how}")

    @contextmanager
    def _set(self, setting: str, value: str) -> Iterator[None]:
        self._spark.conf.set(setting, value)
        try:
            yield
        finally:
            self._spark.conf.unset(setting)


@dataclass(frozen=True)
class Swap:
    """Files of finished batches, and the one file that was written in their place. Written down in `swap.json`.

    Attributes:
        sources: The files that the merged file replaces, by their paths in the table's folder.
        merged: The unique name of the merged file.
        batch: The batch whose folder the merged file goes to: the last one of the sources.
    """

    sources: tuple[str, ...]
    merged: str
    batch: int


class ParquetTables:
    """Plain Parquet: any tool reads it, without what Delta gives: whole versions, earlier ones, changes in place.

    A table has a folder for each batch, `batch=7`. Files of several are merged by a swap:

        _swaps/_<id>/         a merged file while it is written
        _swaps/<id>/          the same, whole, with `swap.json`: from now on it replaces its sources, whatever happens
        _swaps/<id>.done      the merged file is in its place, and the sources are gone

    Each reader of the table completes the swaps that it finds. Each step can be done again, by several at once: a swap names
    files, and no file ever gets the name of another. The notes of it stay, so that concurrent readers notice it.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark, self._folder = spark, folder
        self._files = Files(spark)

    def path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def exists(self, name: str) -> bool:
        # Of the batches the last may be half written, and the first ones half deleted by a swap.
        batches = [batch_of(each) for each in self._files.names(self.path(name)) if each.startswith("batch=")]
        folders = [f"{self.path(name)}/batch={batch}" for batch in sorted(batches, reverse=True)]
        return any(self._files.exists(f"{folder}/_SUCCESS") for folder in folders or [self.path(name)])

    def read(self, name: str) -> DataFrame:
        while True:
            before = self._ended(name)
            frame = self._spark.read.option("mergeSchema", "true").parquet(self.path(name))
            if set(self._swaps(name)) == before:
                return frame

    def append(self, name: str, rows: DataFrame, batch: int) -> None:
        rows.drop("batch").write.mode("overwrite").parquet(f"{self.path(name)}/batch={batch}")

    def overwrite(self, name: str, rows: DataFrame) -> None:
        above, _, last = self.path(name).rpartition("/")
        rows.write.mode("overwrite").parquet(f"{above}/_{last}")
        self._files.delete(self.path(name))
        self._files.move(f"{above}/_{last}", self.path(name))

    def sizes(self, name: str) -> dict[str, int]:
        found = self._files.sizes(self.path(name))
        return {
            file: size
            for file, size in found.items()
            if file.endswith(".parquet") and not any(part.startswith("_") for part in file.split("/"))
        }

    def merge(self, name: str, sources: Sequence[str], swap: str, reached: Reached) -> None:
        """Write files of finished batches together.

        Args:
            name: The name of the table.
            sources: The files to merge; see `sizes`.
            swap: The unique id of the swap.
            reached: Called after each step; see `Reached`.

        Raises:
            RetryLater: Another run has merged files of this table meanwhile.
        """
        folder, before = f"{self.path(name)}/_swaps", self._ended(name)
        batches = sorted({batch_of(source) for source in sources})
        rows = self._spark.read.option("mergeSchema", "true").parquet(
            *[f"{self.path(name)}/{source}" for source in sources]
        )
        rows.coalesce(1).write.parquet(f"{folder}/_{swap}")
        (merged,) = [each for each in self._files.names(f"{folder}/_{swap}") if each.endswith(".parquet")]
        text = json.dumps(asdict(Swap(tuple(sources), merged, batches[-1])))
        self._files.write(f"{folder}/_{swap}/swap.json", text)
        reached("merged")
        if (
            self._swaps(name).keys() - before
        ):  # it may have replaced the same files: their rows would be there twice
            self._files.delete(f"{folder}/_{swap}")
            raise RetryLater(f"another run writes files of {self.path(name)} together: run this again")
        self._files.move(f"{folder}/_{swap}", f"{folder}/{swap}")
        reached("decided")
        self._end(name, swap, reached)

    def expired(self, name: str, before: float) -> list[str]:
        """Notes of swaps that ended before a time (seconds since 1970), and what was left by runs that were killed."""
        folder = f"{self.path(name)}/_swaps"
        old = [
            each
            for each in self._files.names(folder)
            if (each.startswith("_") or "." in each) and self._files.changed_at(f"{folder}/{each}") < before
        ]
        return [f"_swaps/{each}" for each in old]

    def expire(self, name: str, before: float) -> None:
        """Delete them."""
        for each in self.expired(name, before):
            # The notes before the mark: what was killed between them leaves a mark without notes, and not the opposite.
            self._files.delete(f"{self.path(name)}/{each.removesuffix('.done')}")
            self._files.delete(f"{self.path(name)}/{each}")

    def _swaps(self, name: str) -> Mapping[str, bool]:
        """The swaps that were decided, and whether they are done."""
        names = self._files.names(f"{self.path(name)}/_swaps")
        return {
            each: f"{each}.done" in names for each in names if not each.startswith("_") and "." not in each
        }

    def _ended(self, name: str) -> set[str]:
        """End the swaps that were decided. Returns their ids."""
        swaps = self._swaps(name)
        for swap, done in swaps.items():
            if not done:
                self._end(name, swap)
        return set(swaps)

    def _end(self, name: str, swap: str, reached: Reached = lambda _: None) -> None:
        table, notes = self.path(name), f"{self.path(name)}/_swaps/{swap}"
        found = json.loads(self._files.read(f"{notes}/swap.json"))
        if self._files.exists(f"{notes}/{found['merged']}"):
            self._files.move(
                f"{notes}/{found['merged']}", f"{table}/batch={found['batch']}/{found['merged']}"
            )
        reached("in its place")
        for source in found["sources"]:
            self._files.delete(f"{table}/{source}")
        reached("sources deleted")
        for batch in {batch_of(source) for source in found["sources"]} - {found["batch"]}:
            self._files.delete(f"{table}/batch={batch}")
        self._files.write(f"{notes}.done", "")


def batch_of(path: str) -> int:
    """The batch whose folder a path begins with."""
    return int(path.partition("/")[0].removeprefix("batch="))


def last_batch(table: DataFrame) -> int:
    """The greatest number of a batch in a table; -1: it is empty."""
    row = table.agg(fn.max("batch").alias("batch")).first()
    return -1 if row is None or row["batch"] is None else int(row["batch"])


def undisturbed(work: Callable[[], T], wait: Callable[[float], None] = time.sleep) -> T:
    """Run idempotent work, and retry it when another job has changed the same tables meanwhile.

    Args:
        work: The function to run.
        wait: Waits for a number of seconds before the next try.

    Raises:
        RetryLater: All tries failed that way.
    """
    for left in reversed(range(TRIES)):
        try:
            return work()
        except (PySparkException, Py4JError) as error:
            if not any(word in str(error) for word in DISTURBED):
                raise
            if not left:
                raise RetryLater(
                    "another job changes the same tables all the time: run this again"
                ) from error
            wait(PAUSE_S)
    raise AssertionError("the last try returns or raises")
