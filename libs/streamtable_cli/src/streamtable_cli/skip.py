"""`streamtable group skip`: sends the record that stops a group to its dead letters, so that the group continues.

The dead letter and the new offset are committed in one transaction. The offset keeps the metadata that were committed
with the old one: they have the position of the group's table, which does not change.
"""

import time
from contextlib import closing
from dataclasses import replace
from typing import Annotated

import typer

from streamtable.base.deadletter import Origin, dead_letter
from streamtable.base.topics import legal_name
from streamtable.base.types import Committed, NextOffset, RecordBatch, TopicPartition
from streamtable.errors import StreamtableError
from streamtable_admin.cluster import Cluster
from streamtable_admin.errors import NotFound, Refused
from streamtable_admin.lag import readable
from streamtable_admin.reading import read_to
from streamtable_admin.recreated_inputs import recreated_inputs
from streamtable_cli.groups import GroupName
from streamtable_cli.output import AsJson, note, show_json, show_table
from streamtable_cli.reset import CHANGE_S, refuse_members, refuse_unconfirmed
from streamtable_cli.session import session_of

OPEN_S = 30.0
COMMIT_S = 9.0


class SkippedByOperator(StreamtableError):
    """The error in the dead letter of a record that an operator has skipped."""


def skip(
    ctx: typer.Context,
    group: GroupName,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The input on which the group has stopped.")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, help="Its partition.")],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0, help="The offset of the record.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send the record on which a group has stopped to its dead letters, so that the group continues after it.

    The group must have no live members, and the record must be the next one that it would read from this partition. Its
    table and its offsets in all other partitions do not change. The record can be replayed later, with streamtable
    dead-letters replay.
    """
    session = session_of(ctx)
    legal_name(group, "group")
    place = TopicPartition(topic, partition)
    with session.cluster() as cluster:
        refuse_members(cluster, group)
        record, committed = _next_record(cluster, group, place, offset)
        if not as_json:
            show_table(
                ("group", "topic", "partition", "record", "continues at", "dead letters"),
                [(group, topic, partition, offset, offset + 1, f"{group}-dead-letters")],
            )
        refuse_unconfirmed(yes=yes, as_json=as_json)
        patient = replace(cluster, timeout=max(cluster.timeout, CHANGE_S))
        _skip(patient, group, record, committed)
    if as_json:
        show_json(
            {"group": group, "topic": topic, "partition": partition, "skipped": offset, "next": offset + 1}
        )
    else:
        note(f"{place}@{offset} is in the dead letters; group {group!r} continues after it")


def _next_record(
    cluster: Cluster, group: str, place: TopicPartition, offset: int
) -> tuple[RecordBatch, Committed]:
    """Return the record and the committed offset of its partition. Refuses any record but the next."""
    offsets = cluster.committed(group)
    if (found := recreated_inputs(cluster, offsets).get(place.topic)) is not None:
        raise Refused(
            f"group {group!r}: {found}. Set the offset of that partition with 'streamtable group reset'"
        )
    committed = offsets.get(place)
    if committed is None:
        raise NotFound(f"group {group!r} has committed nothing for {place}")
    if committed.next_offset > offset:
        raise Refused(f"group {group!r} is past {place}@{offset}: it is at {committed.next_offset}")
    end = readable(cluster.admin, [place])[place].high
    first = next(iter(read_to(cluster, {place: committed.next_offset}, {place: min(end, offset + 1)})), None)
    if first is None:
        raise NotFound(
            f"{place} has no record at {offset}: group {group!r} is at {committed.next_offset}, the topic ends at {end}"
        )
    if first.first_offset != offset:
        raise Refused(
            f"{place}@{offset} is not the next record of group {group!r}: its next record is {first.first_offset}"
        )
    return first.part(0, 1), committed


def _skip(cluster: Cluster, group: str, record: RecordBatch, committed: Committed) -> None:
    letters = f"{group}-dead-letters"
    topic = cluster.admin.topics([letters]).get(letters)
    if topic is None:
        raise NotFound(
            f"there is no topic {letters!r} for the record: declare it, and run `streamtable topics apply`"
        )
    own = Origin.of(record, 0)
    letter = dead_letter(
        record,
        0,
        SkippedByOperator("skipped by an operator"),
        origin=(Origin.read(record.headers(0)) or own) if record.topic == f"{group}-retry" else own,
        group=group,
        topic=letters,
        now=time.time(),
        bytes_max=topic.max_message_bytes,
    )
    with closing(cluster.kafka.transactional_producer(f"{group}.streamtable-cli-skip")) as outbox:
        outbox.open(OPEN_S)
        # A transaction that another run left open is aborted now, so the offsets committed by now are final.
        if cluster.committed(group).get(record.place) != committed:
            raise Refused(f"group {group!r} has advanced at {record.place} meanwhile; check again")
        outbox.begin()
        try:
            outbox.produce_records([letter])
            outbox.flush(COMMIT_S)
            refuse_members(cluster, group)  # the prompt may have been open for a while
            moved = Committed(NextOffset(record.first_offset + 1), committed.metadata)
            outbox.send_offsets({record.place: moved}, cluster.admin.membership_of_nobody(group))
        except StreamtableError:
            outbox.abort(COMMIT_S)
            raise
        outbox.commit(COMMIT_S)
