"""What processes tell of themselves in the status topic: who has failed, who was killed, whose clock is wrong."""

from collections.abc import Iterator, Mapping
from typing import Any

from streamtable.kafka.admin import KafkaAdmin
from streamtable_cli.decode import Decoder
from streamtable_cli.findings import Finding, ok, problem, warning
from streamtable_cli.output import count, duration
from streamtable_cli.reading import read_to
from streamtable_cli.session import Session, places_of

SILENT_MS = 15_000
"""A process tells every five seconds."""
FORGOTTEN_MS = 24 * 3_600_000
AHEAD_MS = 2_000
RECORD = "streamtable.console.ProcessStatus"

FAILED = "its log says why, as does docs/reference/errors.md; start it again when that is mended"
KILLED = (
    "it was killed (memory? docker inspect or kubectl describe says so), its machine is gone, or it does not reach Kafka: "
    "start it again. Meant to be gone, it is forgotten a day after its last word"
)
BY_NTP = "have it set by NTP: ages, retention and event times are compared across machines"


def told(session: Session, admin: KafkaAdmin, topic: str, decoder: Decoder, now_ms: int) -> Iterator[Finding]:
    """What the records of a status topic say. Raises `RetryLater`."""
    partitions = admin.topic_partitions().get(topic, 0)
    if not partitions:
        yield ok("processes", f"there is no topic {topic}: they are not asked to tell how they are")
        return
    statuses, unread = _statuses(session, admin, topic, partitions, decoder)
    if unread:
        yield warning(
            "processes",
            f"{count(unread, 'record')} of {topic} cannot be read",
            "name the folder with the schema of ProcessStatus: --schemas proto/avro",
        )
    yield from judged(statuses, now_ms)


def _statuses(
    session: Session, admin: KafkaAdmin, topic: str, partitions: int, decoder: Decoder
) -> tuple[dict[str, Mapping[str, Any]], int]:
    """The latest of each process, and how many cannot be read."""
    found: dict[bytes, Any] = {}
    marks = admin.watermarks_known(places_of(topic, partitions))
    starts, ends = ({place: mark[side] for place, mark in marks.items()} for side in (0, 1))
    for batch in read_to(session, admin, starts, ends):
        for key, value in zip(batch.keys, batch.values, strict=True):
            found[key or b""] = decoder.value(topic, value)
    there = {key: shown for key, shown in found.items() if shown.kind != "null"}
    read = {key.decode(errors="replace"): shown.value for key, shown in there.items() if shown.kind == RECORD}
    return read, len(there) - len(read)


def judged(statuses: Mapping[str, Mapping[str, Any]], now_ms: int) -> Iterator[Finding]:
    """Judge what processes have told, by the names of their records."""
    lately = {name: each for name, each in sorted(statuses.items()) if now_ms - each["at"] <= FORGOTTEN_MS}
    well = 0
    ahead: dict[str, int] = {}
    for name, each in lately.items():
        subject, quiet_ms = f"process {name}", now_ms - each["at"]
        where = f"process {each['pid']} on {each['host']}"
        if each["state"] == "failed":
            yield problem(
                subject, f"ended {duration(quiet_ms / 1000)} ago by {each['error']} ({where})", FAILED
            )
        elif quiet_ms > SILENT_MS:
            fact = (
                f"has told nothing for {duration(quiet_ms / 1000)}, and did not say that it stops ({where})"
            )
            yield problem(subject, fact, KILLED)
        else:
            well += 1
        if -quiet_ms > AHEAD_MS:
            ahead[each["host"]] = max(ahead.get(each["host"], 0), -quiet_ms)
    for host, by in ahead.items():
        yield warning(
            f"clock of {host}", f"is at least {duration(by / 1000)} ahead of this machine's", BY_NTP
        )
    yield ok("processes", count(well, "tells how it is", "tell how they are"))
