"""The partition of a key, exactly as the other programs that share a topic compute it.

`murmur2`, the default, is used by Java's producer, so by Kafka Streams and Spark. `fnv1a` is Sarama's
default, so used by Goka. `crc32` is librdkafka's default, so used by producers of confluent-kafka in any language,
unless they set another.
"""

import zlib
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Literal, get_args

from streamtable.errors import GraphError

Partitioner = Literal["murmur2", "fnv1a", "crc32"]

LIBRDKAFKA: Mapping[Partitioner, str] = {
    "murmur2": "murmur2_random",
    "fnv1a": "fnv1a_random",
    "crc32": "consistent_random",
}
"""The name of each partitioner in librdkafka. Records without a key are spread; by `crc32` those with an empty key are too."""

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
# Unpacking all words at once beats a loop over bytes; keys are short, so their formats are made beforehand.
_WORDS = tuple(Struct(f"<{n}I") for n in range(17))
_FNV_PRIME = 0x01000193
_FNV_BASIS = 0x811C9DC5


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of Kafka's `Utils.murmur2` without its sign bit (`Utils.toPositive`): 0 to 2**31 - 1."""
    length = len(data)
    count = length >> 2
    h = _SEED ^ length
    words = _WORDS[count] if count < len(_WORDS) else Struct(f"<{count}I")
    for k in words.unpack_from(data):
        k = k * _M & _MASK  # noqa: PLW2901 - the mix of a word, in place
        h = h * _M & _MASK ^ ((k ^ k >> 24) * _M & _MASK)
    if rest := length & 3:
        h = (h ^ int.from_bytes(data[-rest:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return (h ^ h >> 15) & 0x7FFFFFFF


def fnv1a(data: bytes) -> int:
    """Return FNV-1a of 32 bits, read as a signed number, without its sign: 0 to 2**31."""
    h = _FNV_BASIS
    for byte in data:
        h = (h ^ byte) * _FNV_PRIME & _MASK
    return h if h <= 1 << 31 else (1 << 32) - h


_HASHES: Mapping[Partitioner, Callable[[bytes], int]] = {
    "murmur2": murmur2,
    "fnv1a": fnv1a,
    "crc32": zlib.crc32,
}


def hash_of(partitioner: Partitioner) -> Callable[[bytes], int]:
    """Return the hash of a key; modulo the number of partitions it is the key's partition."""
    return _HASHES[partitioner]


def partition_for(key: bytes, partitions: int, partitioner: Partitioner = "murmur2") -> int:
    """Return the partition of a key in a topic with this many partitions."""
    return _HASHES[partitioner](key) % partitions


def legal_partitioner(partitioner: Partitioner, what: str) -> None:
    """Check the name. Raises `GraphError` if there is no such partitioner."""
    if partitioner not in _HASHES:
        known = " or ".join(repr(name) for name in get_args(Partitioner))
        raise GraphError(f"{what} has the partitioner {partitioner!r}: choose {known}")
