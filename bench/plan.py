"""The rows: their order, and the baseline of each."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bench import (
    calls,
    captures,
    failover,
    joins,
    live,
    microbatch,
    processes,
    reach,
    reading,
    sinks,
    slow_link,
    starts,
    streams,
    windows,
)
from bench.clicks import Clicks
from bench.figures import Figure
from bench.programs.calls import CLICK_COUNT, USER_STATUS
from bench.site import Site

ZIPF = 1.1
KEYS = (10_000, 1_000_000, 5_000_000)
PARTITIONS = (16, 64)
PROCESSES = (2, 4)


@dataclass(frozen=True)
class Step:
    """A step of a run: the rows that are measured together.

    Attributes:
        rows: The rows that the step measures.
        measure: The function that measures them.
        quick: Whether it is part of the quick form.
    """

    rows: tuple[str, ...]
    measure: Callable[[Site], list[Figure]]
    quick: bool = False


BASELINES = {
    "ceiling_c": "ceiling",
    "plain_loop": "ceiling",
    "count_exactly_once": "ceiling",
    "count_exactly_once_1s": "ceiling",
    "count_at_least_once": "ceiling",
    "count_native": "count_python",
    "count_once": "count_of_ids",
    "window_count": "count_of_windows",
    "session_count": "count_of_windows",
    "repartition_count": "count_of_windows",
    "flow_stateless": "ceiling",
    "handler_exactly_once": "plain_loop",
    "handler_at_least_once": "plain_loop",
    "calls_beside": "calls_none",
    "handler_join_output": "handler_exactly_once",
    "handler_lookup": "handler_exactly_once",
    "handler_failing_1": "handler_exactly_once",
    "handler_failing_5": "handler_exactly_once",
    "handler_failing_100": "handler_exactly_once",
    "plain_loop_zipf": "ceiling_zipf",
    "count_exactly_once_zipf": "ceiling_zipf",
    "count_exactly_once_1s_zipf": "ceiling_zipf",
    "count_at_least_once_zipf": "ceiling_zipf",
    "handler_exactly_once_zipf": "plain_loop_zipf",
    "handler_at_least_once_zipf": "plain_loop_zipf",
    "restore": "ceiling",
    "grpc_get": "grpc_empty",
    "grpc_multi_get": "grpc_empty_multi",
    "rest_get": "rest_empty",
    "microbatch_join": "redis_loop",
    **dict.fromkeys(reading.CODECS[1:], "codec_json"),
    "codec_protobuf": "codec_avro",
    "capture": "envelopes_by_handler",
    "sink_appends": "copy_by_hand",
    "sink_upserts": "merge_by_hand",
    "sink_iceberg": "pyiceberg_by_hand",
    "user_status_grpc_get": "grpc_get",
    "user_status_rest_get": "rest_get",
    **{f"count_keys_{keys}": "count_keys_100000" for keys in KEYS},
    **{f"count_partitions_{partitions}": "count_partitions_4" for partitions in PARTITIONS},
    **{f"count_processes_{number}": "count_processes_1" for number in PROCESSES},
}
"""The row that each row is compared with."""


def steps() -> Sequence[Step]:
    """Return all steps, each after its baselines."""
    return (
        Step(("ceiling",), lambda site: streams.ceiling(site, "ceiling", streams.uniform(site)), quick=True),
        Step(
            ("ceiling_c",),
            lambda site: streams.ceiling(site, "ceiling_c", streams.uniform(site), "ceiling_c"),
        ),
        *_streams("", streams.uniform, quick=True),
        Step(
            ("count_python", "count_native"),
            lambda site: streams.both_paths(site, "count_python", "count_native", streams.uniform(site)),
            quick=True,
        ),
        Step(
            ("count_of_ids", "count_once"),
            lambda site: streams.once(
                site, "count_of_ids", "count_once", Clicks(site.sizes.handler, ids=True)
            ),
        ),
        Step(
            ("count_of_windows", "window_count"),
            lambda site: streams.windowed(site, "count_of_windows", "window_count", streams.uniform(site)),
        ),
        Step(("session_count",), lambda site: windows.sessions(site, "session_count")),
        Step(("repartition_count",), lambda site: windows.repartitioned(site, "repartition_count")),
        *(Step((row,), partial(joins.joined, row=row)) for row in joins.ROWS),
        Step(("waiting_records",), lambda site: joins.waiting(site, "waiting_records")),
        Step(("open_windows",), lambda site: windows.open_windows(site, "open_windows")),
        Step(("final_pause",), lambda site: windows.final(site, "final_pause")),
        Step(
            ("flow_stateless",),
            lambda site: streams.tried(
                lambda: streams.stateless(site, "flow_stateless", streams.uniform(site)), site.sizes.tries
            ),
        ),
        Step(
            ("handler_join_output",),
            lambda site: streams.joined(site, "handler_join_output", streams.uniform(site, handler=True)),
        ),
        *(
            Step((f"handler_failing_{percent}",), partial(_failing, percent=percent))
            for percent in (1, 5, 100)
        ),
        Step(
            ("slow_link_first_commit",), lambda site: slow_link.first_commit(site, "slow_link_first_commit")
        ),
        Step(
            ("handler_lookup",),
            lambda site: streams.looked_up(site, "handler_lookup", streams.uniform(site, handler=True)),
        ),
        Step(("restore", "restart_ready"), starts.restore, quick=True),
        Step(("ceiling_zipf",), lambda site: streams.ceiling(site, "ceiling_zipf", _zipf(site))),
        *_streams("_zipf", _zipf, quick=False),
        Step(("view_get_p50", "view_get_p99"), reading.view_get),
        Step(reading.CODECS, reading.codecs),
        Step(CLICK_COUNT, reading.click_count),
        Step(USER_STATUS, reading.user_status),
        Step(("memory_10k",), live.memory),
        Step(("latency_p50", "latency_p99"), live.latency),
        Step(calls.ROWS, calls.calls),
        Step(("own_write_p50", "own_write_p99"), live.own_write),
        Step(("first_record",), starts.first_record),
        Step(("failover_warm", "failover_cold"), failover.failover),
        Step(("redis_loop",), microbatch.redis_loop),
        Step(("microbatch_join",), microbatch.join),
        Step(("microbatch_latency_p50", "microbatch_latency_p99", "microbatch_memory"), microbatch.steady),
        Step(("microbatch_restart",), microbatch.restart),
        Step(captures.ROWS, captures.capture),
        Step(sinks.APPENDS, sinks.appends),
        Step(sinks.UPSERTS, sinks.upserts),
        Step(sinks.ICEBERG, sinks.iceberg),
        Step(("reach",), reach.reach),
        Step(("reach_redis",), reach.reach_redis),
        Step(("reach_memory",), reach.reach_memory),
        Step(
            ("count_keys_100000", "count_partitions_4"),
            lambda site: streams.also_called(
                "count_partitions_4", streams.processor(site, "count_keys_100000", streams.uniform(site))
            ),
        ),
        *(Step((f"count_keys_{keys}",), partial(_keys, keys=keys)) for keys in KEYS),
        *(
            Step((f"count_partitions_{partitions}",), partial(_partitions, partitions=partitions))
            for partitions in PARTITIONS
        ),
        Step(("count_processes_1", "kafka_cpu"), processes.one),
        *(
            Step((f"count_processes_{number}",), partial(processes.several, number=number))
            for number in PROCESSES
        ),
    )


def chosen(
    all_steps: Sequence[Step],
    *,
    quick: bool,
    rows: Collection[str] = (),
    baselines: Mapping[str, str] = BASELINES,
) -> list[Step]:
    """Return only the steps of the quick form, or the steps of some rows and of the rows they are compared with.

    Args:
        all_steps: The steps to choose from.
        quick: Whether to choose only steps of the quick form.
        rows: The rows; empty: all.
        baselines: The row that each row is compared with.

    Raises:
        ValueError: There is no such row; the message lists all rows.
    """
    known = {row for step in all_steps for row in step.rows}
    if unknown := sorted(set(rows) - known):
        raise ValueError(f"there is no row {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    selected = set(rows)
    while added := {baselines[row] for row in selected if row in baselines} - selected:
        selected |= added
    if rows:
        return [step for step in all_steps if selected.intersection(step.rows)]
    return [step for step in all_steps if step.quick or not quick]


def _streams(suffix: str, clicks: Callable[..., Clicks], *, quick: bool) -> list[Step]:
    """The loop by hand and the processors, over one kind of clicks."""

    def step(name: str, measure: Callable[[Site, str], list[Figure]]) -> Step:
        if suffix:
            return Step((name + suffix,), lambda site: measure(site, name + suffix), quick)
        return Step(
            (name,), lambda site: streams.tried(lambda: measure(site, name), site.sizes.long_tries), quick
        )

    def count(site: Site, name: str) -> list[Figure]:
        return streams.processor(site, name, clicks(site))

    def with_memory(site: Site) -> list[Figure]:
        # It has a goal in the quick form too, and single tries differ by a third.
        figures = streams.tried(lambda: count(site, "count_exactly_once"), site.sizes.tries)
        return streams.with_memory("memory_full", figures)

    def handler(guarantee: str) -> Callable[[Site, str], list[Figure]]:
        return lambda site, name: streams.processor(
            site, name, clicks(site, handler=True), handler="record", guarantee=guarantee
        )

    return [
        step("plain_loop", lambda site, name: streams.plain_loop(site, name, clicks(site))),
        step("count_exactly_once", count)
        if suffix
        else Step(("count_exactly_once", "memory_full"), with_memory, quick),
        step(
            "count_exactly_once_1s",
            lambda site, name: streams.processor(site, name, clicks(site), commit_ms=1000),
        ),
        step(
            "count_at_least_once",
            lambda site, name: streams.processor(site, name, clicks(site), guarantee="at_least_once"),
        ),
        step("handler_exactly_once", handler("exactly_once")),
        step("handler_at_least_once", handler("at_least_once")),
    ]


def _failing(site: Site, percent: int) -> list[Figure]:
    # If all records become dead letters, a tenth of them is enough.
    clicks = streams.uniform(site, handler=True) if percent < 100 else Clicks(site.sizes.handler // 10)
    return streams.failing(site, f"handler_failing_{percent}", clicks, percent)


def _zipf(site: Site, *, handler: bool = False) -> Clicks:
    # Both use one topic, a quarter of the uniform one: they have no goal and only show where the time goes.
    return Clicks(site.sizes.handler // 2, skew=ZIPF)


def _keys(site: Site, keys: int) -> list[Figure]:
    return _counted(site, f"count_keys_{keys}", Clicks(site.sizes.stream, keys))


def _partitions(site: Site, partitions: int) -> list[Figure]:
    return _counted(site, f"count_partitions_{partitions}", Clicks(site.sizes.stream, partitions=partitions))


def _counted(site: Site, name: str, clicks: Clicks) -> list[Figure]:
    figures = streams.processor(site, name, clicks)
    site.delete(clicks.topic)
    return figures
