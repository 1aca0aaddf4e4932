"""The settings of a measured program, passed in the environment, which programs in other languages can read too."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

PREFIX = "BENCH_"


@dataclass(frozen=True)
class Job:
    """The job of a measured program; each program uses the attributes that concern it.

    Attributes:
        broker: The address of Kafka.
        topic: The topic to read.
        group: The consumer group, the prefix of its topics.
        records: The number of records to process or to send.
        state_dir: The folder of local state.
        partitions: The number of partitions of the topic.
        guarantee: `exactly_once` or `at_least_once`.
        commit_ms: The milliseconds between commits.
        handler: The handler of a processor: `count` (the built-in aggregate), or a function that is called
            for each: `record`, `join` (with a row of `table`, and an output), `lookup` (with a row of `table`),
            `typed` (orders of JSON), `window`, `session` and `final` (flows that count by user and window), `steps` (one that filters, with an
            output), `key_by` and `key_by_count` (the two groups of one that counts by another key), `failing_1` (1 % of the records fail and become dead letters), `amplify` (each makes an output of 4 KB).
        second: A second input topic with the same keys.
        table: The table that is joined, looked up or queried beside `topic`; the output of a micro-batch.
        store: The URL of a central store.
        until: The end of a processor: `last` (record), `ready`, `handled` (one record) or `signal`. With `killed` it
            reports the first record of each partition and does not stop. With `killed` and `shared` it reports when
            each of `clients` processes has its share of the partitions.
        instance: The instance id of a processor in its group.
        standby: 1: a processor keeps standby replicas of the partitions of other processes.
        rate: The records per second.
        warm_up: The number of records before the measured ones.
        keys: The number of different keys.
        grpc: The address of the gRPC server.
        rest: The address of the REST server.
        seconds: How many seconds callers send each kind of call.
        clients: The number of concurrent callers, tasks, or processes of the group.
        calls: The kinds of calls, separated by commas.
        schema: The path of the records' Avro schema.
        native: Whether a processor uses the inner loops in C: `required`, `auto` or `off`.
    """

    broker: str
    topic: str = ""
    group: str = ""
    records: int = 0
    state_dir: str = ""
    partitions: int = 4
    guarantee: str = "exactly_once"
    commit_ms: int = 200
    handler: str = "count"
    second: str = ""
    table: str = ""
    store: str = ""
    until: str = "last"
    instance: str = "bench"
    standby: int = 0
    rate: int = 0
    warm_up: int = 0
    keys: int = 0
    grpc: str = ""
    rest: str = ""
    seconds: float = 0.0
    clients: int = 1
    calls: str = ""
    schema: str = ""
    native: str = "auto"

    def environment(self) -> dict[str, str]:
        """Return the job as environment variables, `BENCH_RECORDS` and so on."""
        return {PREFIX + each.name.upper(): str(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Return the job from the variables made by `environment`."""
        kinds = {"str": str, "int": int, "float": float, str: str, int: int, float: float}
        return cls(
            **{each.name: kinds[each.type](environment[PREFIX + each.name.upper()]) for each in fields(cls)}
        )
