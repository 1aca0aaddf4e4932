"""Which partition a key belongs to: exactly as Java's producer, Spark and librdkafka's `murmur2_random` decide."""

from struct import Struct

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
# Unpacking all words at once beats a loop over bytes; keys are short, so their formats are made beforehand.
_WORDS = tuple(Struct(f"<{n}I") for n in range(17))


def murmur2(data: bytes) -> int:
    """The 32-bit hash of Kafka's `Utils.murmur2`, without its sign bit (`Utils.toPositive`): 0 to 2**31 - 1."""
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


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of a key in a topic of so many partitions."""
    return murmur2(key) % partitions
