"""The offsets that a lake has read from Kafka, and a check, before a job starts, that Kafka still has the next records.

Spark would notice missing records in the middle of the work; or not at all, when a topic was deleted and created again and has
grown past the old offset since.
"""

from collections.abc import Mapping
from typing import Final

from streamtable_spark.errors import InputLost, OtherLake
from streamtable_spark.jobs.files import Files
from streamtable_spark.jobs.positions import READ_OFFSETS, Offsets, Place, Span, by_place

Read = dict[str, Offsets]
"""The next offset of each partition, by topic and partition."""
_FIRST: Final = "sources/0/0"


def last_finished(files: Files, checkpoint: str) -> int:
    """Return the number of the last batch that all tables have; -1 if there is none."""
    return max((int(name) for name in files.names(f"{checkpoint}/commits") if name.isdigit()), default=-1)


def read_so_far(files: Files, checkpoint: str) -> Read | None:
    """Return the start offsets of the next batch from Spark's checkpoint: the end of the last finished batch.

    Returns:
        None if nothing was read yet.

    Raises:
        OtherLake: The checkpoint is damaged.
    """
    finished = last_finished(files, checkpoint)
    if finished >= 0:
        return _offsets(files, f"{checkpoint}/offsets/{finished}")
    return read_from(files, checkpoint) if files.exists(f"{checkpoint}/{_FIRST}") else None


def read_from(files: Files, checkpoint: str) -> Read:
    """Return the start offsets of the first batch from Spark's checkpoint. Raises `OtherLake` if it is damaged."""
    return _offsets(files, f"{checkpoint}/{_FIRST}")


def check_planned(files: Files, checkpoint: str, read: Read, written: int) -> None:
    """Delete the plan of an unfinished batch that lacks a topic, so that Spark plans the batch again, with all topics.

    Args:
        files: The files of the lake.
        checkpoint: Spark's checkpoint.
        read: The offsets read so far; see `read_so_far`.
        written: The number of the last batch that a table has.

    Raises:
        OtherLake: A table has records of this batch already, or the checkpoint is damaged.
    """
    batch = last_finished(files, checkpoint) + 1
    path = f"{checkpoint}/offsets/{batch}"
    if files.exists(path) and (without := sorted(read.keys() - _offsets(files, path).keys())):
        if batch <= written:
            raise OtherLake(
                f"{path} plans batch {batch} without {', '.join(without)}, whose records would come twice. Make a new lake"
            )
        files.delete(path)


def _offsets(files: Files, path: str) -> Read:
    """Return the offsets in the last line of a checkpoint file; the lines before it hold no offsets of Kafka."""
    text = files.read(path) if files.exists(path) else ""
    try:
        return READ_OFFSETS.validate_json(text.rpartition("\n")[2])
    except ValueError as error:
        how = f"it holds {text[:40]!r}" if text else "it is missing or empty"
        raise OtherLake(
            f"{path} is damaged ({how}): which records were read is not known. Restore the checkpoint, or make a new lake"
        ) from error


def check_kept(
    read: Read, starts: Mapping[str, Offsets], ends: Mapping[str, Offsets], *, allow: bool
) -> Mapping[Place, Span]:
    """Check that Kafka has the records to read next. Returns the offsets that are missing, if that is allowed.

    Args:
        read: The next offset of each partition; 0 where none was read yet.
        starts: The first offset of each partition in Kafka.
        ends: The end offset of each partition in Kafka.
        allow: Continue without records that retention has deleted.

    Raises:
        InputLost: Unread records are gone, or a topic ends before the offsets that were read.
    """
    gone: dict[Place, Span] = {}
    for place, offset in by_place(read):
        topic, number = place
        end = ends.get(topic, {}).get(number, offset)
        if end < offset:
            raise InputLost(
                f"{place} ends at offset {end}, and {offset} records of it were read: it is not the topic any more that this lake was made from. Make a new lake for the new topic"
            )
        if (start := starts.get(topic, {}).get(number, offset)) > offset:
            gone[place] = Span(offset, start)
    if gone and not allow:
        said = [
            f"{place} offsets {lost.start} to {lost.end - 1} ({lost.size})" for place, lost in gone.items()
        ]
        raise InputLost(
            f"{sum(lost.size for lost in gone.values())} offsets were deleted before they were read: {'; '.join(said[:3])}{'; and more' if len(said) > len(said[:3]) else ''}. Retention is too "
            "short for how rarely this job runs, or for a topic that is added. --allow-missing continues with the remaining records"
        )
    return gone
