"""The ceiling without Python: librdkafka's own loop takes the records, calls a C function with each, and drops them.

It is the librdkafka that the Python client has loaded, called by ctypes: a call of Python for each 100 ms, not for each record.
"""

import os
from ctypes import (
    CDLL,
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_void_p,
    create_string_buffer,
)

from bench.job import Job
from bench.programs.client import WAIT_SECONDS, settings
from bench.programs.marks import mark
from confluent_kafka import cimpl

_CONSUMER = 1
_TEXT_BYTES = 512


class _Partition(Structure):
    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("private", c_void_p),
    )


class _Partitions(Structure):
    _fields_ = (("count", c_int), ("size", c_int), ("elements", POINTER(_Partition)))


def library() -> CDLL:
    """Return librdkafka with the types of the functions that are used."""
    found = CDLL(cimpl.__file__)
    for name, result, arguments in (
        ("conf_new", c_void_p, []),
        ("conf_set", c_int, [c_void_p, c_char_p, c_char_p, c_char_p, c_size_t]),
        ("new", c_void_p, [c_int, c_void_p, c_char_p, c_size_t]),
        ("poll_set_consumer", c_int, [c_void_p]),
        ("queue_get_consumer", c_void_p, [c_void_p]),
        ("topic_partition_list_new", POINTER(_Partitions), [c_int]),
        ("topic_partition_list_add", c_void_p, [POINTER(_Partitions), c_char_p, c_int32]),
        ("subscribe", c_int, [c_void_p, POINTER(_Partitions)]),
        ("assignment", c_int, [c_void_p, POINTER(POINTER(_Partitions))]),
        ("position", c_int, [c_void_p, POINTER(_Partitions)]),
        ("consume_callback_queue", c_int, [c_void_p, c_int, c_void_p, c_void_p]),
        ("consumer_close", c_int, [c_void_p]),
    ):
        function = getattr(found, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return found


def opened(kafka: CDLL, job: Job) -> int:
    """Return a client that has subscribed to the topic."""
    reason = create_string_buffer(_TEXT_BYTES)
    made = kafka.rd_kafka_conf_new()
    for name, value in settings(job).items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        assert not kafka.rd_kafka_conf_set(made, name.encode(), text.encode(), reason, _TEXT_BYTES), (
            reason.value
        )
    client: int = kafka.rd_kafka_new(_CONSUMER, made, reason, _TEXT_BYTES)
    assert client, reason.value
    kafka.rd_kafka_poll_set_consumer(client)
    topics = kafka.rd_kafka_topic_partition_list_new(1)
    kafka.rd_kafka_topic_partition_list_add(topics, job.topic.encode(), -1)
    assert not kafka.rd_kafka_subscribe(client, topics)
    return client


def positions(kafka: CDLL, client: int) -> int:
    """Return the sum of the client's positions."""
    assigned = POINTER(_Partitions)()
    kafka.rd_kafka_assignment(client, assigned)
    kafka.rd_kafka_position(client, assigned)
    places = assigned.contents
    return sum(max(places.elements[index].offset, 0) for index in range(places.count))


def main() -> None:
    job = Job.from_environment(os.environ)
    kafka = library()
    client = opened(kafka, job)
    queue = kafka.rd_kafka_queue_get_consumer(client)
    # It looks at the record and changes nothing.
    each = kafka.rd_kafka_message_leader_epoch
    seen = 0
    while seen < job.records:
        taken = kafka.rd_kafka_consume_callback_queue(queue, int(WAIT_SECONDS * 1000), each, None)
        if taken > 0 and not seen:
            mark("first")
        seen += max(taken, 0)
    mark("last")
    # An error would have been counted as a record.
    read = positions(kafka, client)
    assert read == job.records, f"read {read} records, not {job.records}"
    kafka.rd_kafka_consumer_close(client)


if __name__ == "__main__":
    main()
