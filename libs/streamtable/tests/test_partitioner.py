import random
from typing import get_args

import pytest
from confluent_kafka import Message, Producer

from streamtable.base.partitioner import LIBRDKAFKA, Partitioner, fnv1a, murmur2, partition_for


@pytest.mark.parametrize(
    ("key", "signed"),
    [  # the vectors of Kafka's own UtilsTest: Java's signed ints
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_javas_without_its_sign_bit(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0x7FFFFFFF


@pytest.mark.parametrize(
    ("key", "signed"),
    [  # Go's hash/fnv, as a signed int of 32 bits
        (b"", -2128831035),
        (b"a", -468965076),
        (b"foobar", -1080231576),
        (b"~kkwsA", -(2**31)),
    ],
)
def test_fnv1a_is_the_signed_hash_without_its_sign(key: bytes, signed: int) -> None:
    assert fnv1a(key) == abs(signed)


@pytest.mark.parametrize(
    ("partitioner", "key", "partition"),
    [
        *(("murmur2", b"alice", 9), ("murmur2", b"bob", 6), ("murmur2", b"carol", 2)),
        *(("murmur2", b"user-1", 8), ("murmur2", b"user-2", 8), ("murmur2", b"order-42", 0)),
        *(("fnv1a", b"alice", 5), ("fnv1a", b"bob", 8)),
        *(("crc32", b"alice", 11), ("crc32", b"bob", 8)),
    ],
)
def test_known_keys_have_their_known_partitions_of_twelve(
    partitioner: Partitioner, key: bytes, partition: int
) -> None:
    assert partition_for(key, 12, partitioner) == partition


@pytest.mark.parametrize("partitioner", get_args(Partitioner))
def test_it_agrees_with_librdkafka_for_keys_of_all_lengths(partitioner: Partitioner) -> None:
    draw = random.Random(20)
    keys = {draw.randbytes(length % 150) for length in range(1, 1501)}
    if partitioner == "crc32":
        keys.discard(b"")  # librdkafka spreads records with an empty key
    assigned: dict[bytes, int] = {}

    def note(error: object, message: Message) -> None:
        assert error is None
        key, partition = message.key(), message.partition()
        assert isinstance(key, bytes)
        assert partition is not None
        assigned[key] = partition

    # The client's own mock cluster: it knows no more than how to accept records, which is enough here.
    producer = Producer({"test.mock.num.brokers": 1, "partitioner": LIBRDKAFKA[partitioner], "log_level": 0})
    partitions = len(producer.list_topics("keys", timeout=10).topics["keys"].partitions)
    for key in keys:
        producer.produce("keys", b"", key, on_delivery=note)
    assert producer.flush(30) == 0
    assert partitions > 1
    assert assigned == {key: partition_for(key, partitions, partitioner) for key in keys}
    assert set(assigned.values()) == set(range(partitions))
