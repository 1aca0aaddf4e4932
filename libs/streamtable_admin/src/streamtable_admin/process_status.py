"""The reports of processes in the status topic: which have failed, were killed, or have a wrong clock."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from streamtable.base.lateness import LATE_SHARE_MAX, advice
from streamtable_admin.cluster import Cluster
from streamtable_admin.decode import Decoder
from streamtable_admin.findings import Finding, ok, problem, warning
from streamtable_admin.process_trend import ProcessTrends
from streamtable_admin.reading import read_to
from streamtable_admin.text import count, duration

SILENT_MS = 15_000
"""A process reports every five seconds; one that has not reported for longer than this is taken for killed."""
FORGOTTEN_MS = 24 * 3_600_000
"""A process that has not reported for longer than this is not shown any more."""
CLOCK_SKEW_MS = 2_000
STALE_S = 60
"""A view applies the changes of a table within a second; a copy that is older does not keep up."""
RECORD = "streamtable.console.ProcessStatus"
_ADDED: dict[str, Any] = {"due": (), "calls": (), "abort_reason": ""}
"""The fields that reports of earlier versions lack: each is decoded by the schema that it was written with."""

FAILED_ADVICE = "see its log and docs/reference/errors.md; restart it when the cause is fixed"
KILLED_ADVICE = (
    "it was killed (out of memory? see docker inspect or kubectl describe), its machine is gone, or it cannot reach "
    "Kafka: restart it. If it was removed on purpose, it is forgotten a day after its last report"
)
STALE_ADVICE = "see whether it reaches Kafka, and whether it has enough CPU to apply the changes of the table"
CLOCK_ADVICE = "synchronize it by NTP: ages, retention and event times are compared across machines"


def state_at(status: Mapping[str, Any], now_ms: int) -> str | None:
    """Return the state of a process: as it reported it, or `silent`; None if it is forgotten."""
    quiet_ms = now_ms - status["at"]
    if quiet_ms > FORGOTTEN_MS:
        return None
    return "silent" if quiet_ms > SILENT_MS and status["state"] != "failed" else str(status["state"])


def process_findings(cluster: Cluster, topic: str, decoder: Decoder, now_ms: int) -> Iterator[Finding]:
    """Yield findings from the records of a status topic. Raises `RetryLater`."""
    if not cluster.admin.topic_partitions().get(topic, 0):
        yield ok("processes", f"there is no topic {topic}, so no process reports its status")
        return
    trends = ProcessTrends()
    statuses, undecoded = _statuses(cluster, topic, decoder, trends)
    if undecoded:
        yield warning(
            "processes",
            f"{count(undecoded, 'record')} of {topic} cannot be decoded",
            "name the folder with the schema of ProcessStatus: --schemas proto/avro",
        )
    yield from trends.findings(now_ms)
    yield from judge_processes(statuses, now_ms)


def _statuses(
    cluster: Cluster, topic: str, decoder: Decoder, trends: ProcessTrends
) -> tuple[dict[str, Mapping[str, Any]], int]:
    """Return the latest status of each process, and how many cannot be decoded; `trends` gets each report."""
    found: dict[str, tuple[str, Mapping[str, Any] | None]] = {}
    marks = cluster.admin.watermarks_known(cluster.partitions(topic))
    starts, ends = ({place: mark[side] for place, mark in marks.items()} for side in (0, 1))
    for batch in read_to(cluster, starts, ends):
        for key, value in zip(batch.keys, batch.values, strict=True):
            name, each = (key or b"").decode(errors="replace"), decoder.value(topic, value)
            found[name] = each.kind, _ADDED | each.value if each.kind == RECORD else None
            if each.kind in {RECORD, "null"}:
                trends.add(name, found[name][1])
    known = {name: status for name, (_, status) in found.items() if status is not None}
    return known, sum(kind not in {RECORD, "null"} for kind, _ in found.values())


def _late(subject: str, due: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield the windows and joins where too many records of a minute were late."""
    for each in due:
        if each.get("late_share", 0) > LATE_SHARE_MAX:
            fact = f"{each['late_share']:.0%} of a minute's records were late for {each['topic']}[{each['partition']}]"
            yield warning(subject, fact, advice(each["moved_by"]))


def _stale(subject: str, status: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the copies of tables that do not keep up with their topics."""
    for each in status["copies"] if status["state"] == "ready" else ():
        if (age := each["age_seconds"]) > STALE_S:
            fact = f"its copy of {each['table']} is {duration(age)} old, and so are its answers"
            yield warning(subject, fact, STALE_ADVICE, status["at"] - round(age * 1000))


def judge_processes(statuses: Mapping[str, Mapping[str, Any]], now_ms: int) -> Iterator[Finding]:
    """Yield the problems of processes, by the keys of their statuses."""
    healthy = 0
    ahead: dict[str, int] = {}
    for name, each in sorted(statuses.items()):
        state, quiet_ms = state_at(each, now_ms), now_ms - each["at"]
        if state is None:
            continue
        subject, ago = f"process {name}", duration(quiet_ms / 1000)
        where = f"process {each['pid']} on {each['host']}"
        if state == "failed":
            fact = f"failed {ago} ago with {each['error']} ({where})"
            yield problem(subject, fact, FAILED_ADVICE, each["at"])
        elif state == "silent":
            fact = f"has not reported for {ago}, and did not report a stop ({where})"
            yield problem(subject, fact, KILLED_ADVICE, each["at"])
        else:
            healthy += 1
            yield from _late(subject, each["due"])
            yield from _stale(subject, each)
        if -quiet_ms > CLOCK_SKEW_MS:
            ahead[each["host"]] = max(ahead.get(each["host"], 0), -quiet_ms)
    for host, by in ahead.items():
        fact = f"is at least {duration(by / 1000)} ahead of this machine's"
        yield warning(f"clock of {host}", fact, CLOCK_ADVICE)
    yield ok("processes", count(healthy, "reports its status", "report their status"))
