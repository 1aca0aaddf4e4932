"""Rows about micro-batches over Redis, beside a hand-written loop that queries it for each record."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import orjson
from bench.clicks import STATUS, UPDATE, Clicks, fill, users
from bench.figures import Figure
from bench.job import Job
from bench.measure import RowFailed
from bench.programs.micro_batch import ROWS
from bench.site import Site
from bench.streams import rate
from redis import Redis

from contracts.records import USER_STATUS, USER_STATUS_UPDATE, UserStatus
from localstores.redis import RedisServer
from microbatch.stores.redis import RedisDriver
from microbatch.stores.versions import ABSENT, NOTHING, Version, VersionedCell
from streamtable import Avro
from streamtable.base.partitioner import partition_for

RATE = 10_000
WAIT_MS = 1000
_WARM_UP_SECONDS = 10  # a newly started broker compiles its code, which takes half of the machine
_CLICKS_OF_A_USER = 3
_CHUNK = 10_000
_STORE_SECONDS = 10.0
Read = Callable[[Job, list[str]], list[UserStatus]]


def redis_loop(site: Site) -> list[Figure]:
    """Measure a fiftieth of the stream, because each record waits for Redis twice."""
    with _redis(site, "redis_loop") as server:
        return [_joined(site, "redis_loop", server, site.sizes.stream // 200, _read_json)]


def join(site: Site) -> list[Figure]:
    """Measure the same join by a micro-batch, of ten times as many records, three quarters of them clicks."""
    with _redis(site, "microbatch_join") as server:
        return [_joined(site, "micro_batch", server, site.sizes.stream // 15, _read_cells)]


def steady(site: Site) -> list[Figure]:
    """Measure at 10,000 records per second: milliseconds from an event's emission to its output, and peak resident memory."""
    with _redis(site, "microbatch_steady") as server:
        group = site.group("microbatch_latency")
        names = f"{group}-clicks", f"{group}-updates", f"{group}-out"
        site.create(names, 4)
        job = Job(
            site.broker,
            names[0],
            group,
            int(RATE * (_WARM_UP_SECONDS + site.sizes.live_seconds)),
            second=names[1],
            table=names[2],
            store=server.url,
            commit_ms=WAIT_MS,
            until="signal",
            rate=RATE,
            warm_up=int(RATE * _WARM_UP_SECONDS),
        )
        with site.start("micro_batch", job, "microbatch_memory") as processor:
            with site.start("batch_latency", job, "microbatch_latency") as program:
                found = program.result()
                program.end()
            used = processor.now()
            processor.stop()
        sent = program.mark("last").time - program.mark("first").time
        site.forget(group)
    if job.records / sent < 0.9 * RATE:
        raise RowFailed(f"the load reached only {job.records / sent:.0f} records/s")
    return [
        *(
            Figure(
                f"microbatch_latency_{each}", found[each], "ms", rss_mb=processor.rss_mb, records=job.records
            )
            for each in ("p50", "p99")
        ),
        Figure(
            "microbatch_memory",
            processor.rss_mb,
            "MB",
            cpu_seconds=used.cpu,
            rss_mb=processor.rss_mb,
            records=job.records,
        ),
    ]


def restart(site: Site) -> list[Figure]:
    """Kill a process with a million rows in the store: measure from its successor's assignment to its first committed batch."""
    clicks = Clicks(site.sizes.stream // 50, site.sizes.keys)
    with _redis(site, "microbatch_restart") as server:
        group = site.group("microbatch_restart")
        names = f"{group}-clicks", f"{group}-updates"
        site.create(names, 4)
        job = Job(
            site.broker,
            names[0],
            group,
            2 * clicks.records,
            second=names[1],
            store=server.url,
            commit_ms=WAIT_MS,
            until="signal",
        )
        _fill_store(job, site.sizes.keys)
        fill(site.broker, clicks, job.topic)
        with site.start("micro_batch", job, "microbatch_restart-killed") as killed:
            site.wait_committed(killed, replace(job, records=1))
            killed.kill()
        fill(site.broker, clicks, job.topic)
        with site.start("micro_batch", job, "microbatch_restart") as program:
            before = site.committed(job)
            assigned = program.mark("assigned")
            done = site.wait_committed(program, replace(job, records=before + 1))
            site.wait_committed(program, job)
            program.stop()
        clicked = sorted({f"user-{number}" for chunk in users(clicks) for number in chunk})
        total = sum(row["clicks"] for row in _read_cells(job, clicked))
        site.forget(group)
    if total != len(clicked) + job.records:
        raise RowFailed(f"wrong: the rows have {total} clicks, not {len(clicked) + job.records}")
    return [
        Figure(
            "microbatch_restart",
            done.time - assigned.time,
            "s",
            cpu_seconds=done.cpu - assigned.cpu,
            rss_mb=program.rss_mb,
        )
    ]


def _redis(site: Site, name: str) -> RedisServer:
    return RedisServer(site.state(site.name(f"{name}-redis")))


def _joined(site: Site, module: str, server: RedisServer, keys: int, read: Read) -> Figure:
    """Measure an update of each user and three times as many clicks, from the first record until all are committed."""
    clicks = Clicks(_CLICKS_OF_A_USER * keys, keys)
    group = site.group(module)
    job = Job(
        site.broker,
        site.clicks(clicks),
        group,
        clicks.records + keys,
        second=site.table(keys, "updates", Avro(USER_STATUS_UPDATE).encode(UPDATE)),
        store=server.url,
        commit_ms=WAIT_MS,
    )
    name = "microbatch_join" if module == "micro_batch" else module
    with site.start(module, job, name) as program:
        first = program.mark("first")
        program.mark("last")
        committed = site.wait_committed(program, job)
        program.end()
    check_rows(read(job, [f"user-{number}" for number in range(keys)]), clicks.records, keys)
    site.forget(group)
    site.delete(job.topic, job.second)
    return rate(name, job.records, first, committed, program)


def check_rows(rows: Iterable[UserStatus], clicks: int, users_known: int) -> None:
    """Raise `RowFailed` unless each user has a status, and the clicks add up."""
    found = list(rows)
    total, said = sum(row["clicks"] for row in found), sum(row["status"] == UPDATE["status"] for row in found)
    if (total, said) != (clicks, users_known):
        raise RowFailed(
            f"wrong: the rows have {total} clicks and {said} statuses, not {clicks} and {users_known}"
        )


def _read_json(job: Job, keys: list[str]) -> list[UserStatus]:
    client = Redis.from_url(job.store)
    try:
        found = client.mget([f"{job.group}:{key}" for key in keys])
    finally:
        client.close()
    return [orjson.loads(row) for row in found if row is not None]


def _read_cells(job: Job, keys: list[str]) -> list[UserStatus]:
    """Return the last version of each row: after a clean shutdown it is committed."""
    driver, decode = RedisDriver(job.store, tenant=job.group), Avro(USER_STATUS).decode
    found: list[UserStatus] = []
    try:
        for at in range(0, len(keys), _CHUNK):
            answer = driver.read([ROWS.key(key) for key in keys[at : at + _CHUNK]], _STORE_SECONDS)
            if answer.failed:
                raise RowFailed(f"the store cannot be read: {next(iter(answer.failed.values()))}")
            cells = (VersionedCell.decode(row) for row in answer.rows.values())
            found += [decode(cell.current.value) for cell in cells if cell.current.value is not None]
    finally:
        driver.close()
    return found


def _fill_store(job: Job, keys: int) -> None:
    """Write a row for each user, as if it existed before all batches."""
    driver = RedisDriver(job.store, tenant=job.group)
    try:
        for rows in _rows(job, keys):
            written = driver.write(rows, None, _STORE_SECONDS)
            if written.failed:
                raise RowFailed(f"the store cannot be filled: {next(iter(written.failed.values()))}")
    finally:
        driver.close()


def _rows(job: Job, keys: int) -> Iterator[Mapping[bytes, bytes]]:
    cells = [VersionedCell(Version(NOTHING, STATUS), ABSENT, each).encode() for each in range(job.partitions)]
    for at in range(0, keys, _CHUNK):
        chunk = range(at, min(at + _CHUNK, keys))
        yield {
            ROWS.key(f"user-{number}"): cells[partition_for(b"user-%d" % number, job.partitions)]
            for number in chunk
        }
