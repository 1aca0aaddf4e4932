"""Rows about queries: a view in Python, and the services that answer from one."""

from collections.abc import Sequence
from dataclasses import replace

from bench.clicks import STATUS
from bench.figures import Figure
from bench.job import Job
from bench.measure import Program
from bench.programs.calls import CLICK_COUNT, USER_STATUS
from bench.site import Site

KEYS = 100_000
CODECS = (
    "codec_json",
    "codec_typed",
    "codec_typed_dataclass",
    "codec_typed_pydantic",
    "codec_avro",
    "codec_protobuf",
)
CLIENTS = 4
REQUESTS = "requests/s"


def view_get(site: Site) -> list[Figure]:
    """Measure the microseconds of one `get` in the process of the view."""
    state = site.state("view")
    job = Job(site.broker, site.table(KEYS), records=site.sizes.gets, keys=KEYS, state_dir=str(state))
    with site.start("view_get", job, "view_get") as program:
        found = program.result()
        program.end()
        first, last = program.mark("first"), program.mark("last")
    return [
        Figure(
            f"view_get_{each}",
            found[each],
            "us",
            cpu_seconds=last.cpu - first.cpu,
            rss_mb=program.rss_mb,
            records=job.records,
        )
        for each in ("p50", "p99")
    ]


def codecs(site: Site) -> list[Figure]:
    """Measure the CPU microseconds of a record in one handler, by the codec of the records."""
    job = Job(site.broker, "", records=site.sizes.gets // 4)
    with site.start("codecs", job, "codecs") as program:
        found: dict[str, float] = program.result()
        program.end()
    return [Figure(name, found[name], "us", records=job.records) for name in CODECS]


def click_count(site: Site) -> list[Figure]:
    """Measure the services of click-count, with one table."""
    return _services(site, "click_counts", Job(site.broker, site.table(KEYS)), CLICK_COUNT)


def user_status(site: Site) -> list[Figure]:
    """Measure the services of user-status, with two tables."""
    statuses = site.table(KEYS, "statuses", STATUS)
    return _services(site, "user_statuses", Job(site.broker, statuses, table=site.table(KEYS)), USER_STATUS)


def _services(site: Site, module: str, job: Job, calls: Sequence[str]) -> list[Figure]:
    """Measure the requests per second of callers without pauses; CPU and memory are the server's."""
    job = replace(
        job, keys=KEYS, state_dir=str(site.state(module)), clients=CLIENTS, seconds=site.sizes.seconds
    )
    with site.start(module, job, module) as server:
        addresses = server.result()
        job = replace(job, grpc=addresses["grpc"], rest=addresses["rest"], calls=",".join(calls))
        with site.start("callers", job, f"{module}-callers") as callers:
            figures = [_asked(call, server, callers) for call in calls]
            callers.end()
        server.stop()
    return figures


def _asked(call: str, server: Program, callers: Program) -> Figure:
    first = callers.mark(f"{call}_first")
    began = server.now()
    last = callers.mark(f"{call}_last")
    ended = server.now()
    callers.wait(
        lambda: any(result["call"] == call for result in callers.results), f"has no result of {call}"
    )
    found = next(result for result in callers.results if result["call"] == call)
    return Figure(
        call,
        found["requests"] / (last.time - first.time),
        REQUESTS,
        cpu_seconds=ended.cpu - began.cpu,
        rss_mb=server.rss_mb,
        records=found["requests"],
        p99_us=found["p99_us"],
    )
