"""Decode the raw records of a topic to rows of silver, and mark those that repeat an earlier event."""

from contextlib import ExitStack

from pyspark.sql import DataFrame

from streamtable_spark.jobs.topics import Topic
from streamtable_spark.transforms import layers


def silver(topic: Topic, raw: DataFrame, earlier: DataFrame | None, kept: ExitStack) -> DataFrame:
    """Return the rows of the records that can be decoded; see `layers.silver`.

    Args:
        topic: The topic.
        raw: Its bronze records, each offset once.
        earlier: The silver table as far back as repetitions are searched; None if there is none.
        kept: Frames that are read more than once stay persisted until it is closed.
    """
    repeats = None if topic.id is None else _repeated(topic, raw, earlier, kept)
    return layers.silver(decoded(topic, raw), repeats, topic.event_id, text_keys=topic.text_keys)


def decoded(topic: Topic, raw: DataFrame) -> DataFrame:
    """Decode bronze records of a topic; see `layers.read`."""
    return layers.read(raw, topic.codec, text_keys=topic.text_keys)


def _repeated(topic: Topic, raw: DataFrame, earlier: DataFrame | None, kept: ExitStack) -> DataFrame | None:
    """Return the positions of events that repeat an earlier one; None if there are none."""
    assert topic.event_id is not None, "asked for a topic whose events have ids"

    def held(frame: DataFrame) -> DataFrame:
        kept.callback(frame.persist().unpersist)
        return frame

    suspects = held(layers.suspects(raw, topic.peeked_id, earlier))
    if not suspects.count():
        return None
    few = layers.of_suspects(raw, topic.peeked_id, suspects)
    found = held(layers.repeated(layers.ids(decoded(topic, few), topic.event_id), earlier))
    return found if found.count() else None
