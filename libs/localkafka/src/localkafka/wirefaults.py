"""The faults of requests of Kafka's protocol in transit, and plans of when they happen."""

import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from random import Random
from typing import Final, Self

_HEADER: Final = struct.Struct(">hhih")


class Api(IntEnum):
    """The requests that have a name here; the number of any other is passed on as it is."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    CONSUMER_GROUP_HEARTBEAT = 68


@dataclass(frozen=True, slots=True)
class Request:
    """The header of a request.

    Attributes:
        api: An `Api`, or the number of a request that has no name here.
        client_id: The client id.
    """

    api: int
    version: int
    correlation_id: int
    client_id: str

    @classmethod
    def parse(cls, frame: bytes) -> Self:
        """Read the header of a frame that begins after its size."""
        api, version, correlation_id, length = _HEADER.unpack_from(frame)
        name = frame[_HEADER.size : _HEADER.size + max(length, 0)]
        return cls(api, version, correlation_id, name.decode(errors="replace"))


@dataclass(frozen=True, slots=True)
class LoseRequest:
    """The broker never gets the request, nor what follows on its connection, which is reset `seconds` later."""

    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """The broker does what is asked; the answer and all that follow are lost, and `seconds` later the connection."""

    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class DelayRequest:
    """The request, and what follows on its connection, arrives `seconds` later: also if its client has gone by then."""

    seconds: float


@dataclass(frozen=True, slots=True)
class DelayAnswer:
    """The answer, and what follows on its connection, arrives `seconds` later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class CutRequest:
    """The connection is reset when `keep` bytes of the request have been passed on."""

    keep: int


@dataclass(frozen=True, slots=True)
class CutAnswer:
    """The connection is reset when `keep` bytes of the answer have been passed on."""

    keep: int


Fault = LoseRequest | LoseAnswer | DelayRequest | DelayAnswer | CutRequest | CutAnswer
Plan = Callable[[Request], Fault | None]


def any_fault(rng: Random) -> Fault:
    """Draw a fault of any kind. Delays are up to 8 s: longer than most time-outs of a commit."""
    late, soon, keep = rng.uniform(0.1, 8.0), rng.uniform(0.1, 2.0), rng.randrange(40)
    kinds: list[Fault] = [
        LoseRequest(soon),
        LoseAnswer(soon),
        DelayRequest(late),
        DelayAnswer(late),
        CutRequest(keep),
        CutAnswer(keep),
    ]
    return rng.choice(kinds)


class Each:
    """A plan that injects a fault into the first requests of one kind.

    Args:
        api: The kind of the requests.
        fault: The fault to inject.
        times: The number of requests.
    """

    def __init__(self, api: int, fault: Fault, times: int = 1) -> None:
        self._api, self._fault, self._left = api, fault, times

    def __call__(self, request: Request) -> Fault | None:
        if request.api != self._api or not self._left:
            return None
        self._left -= 1
        return self._fault

    def done(self) -> bool:
        """Whether it has happened as often as it was to."""
        return not self._left

    def __str__(self) -> str:
        return f"{self._fault} of {Api(self._api).name}"


class Storm:
    """A plan made of a seed: what happens to the n-th request of a kind does not depend on requests of other kinds.

    Args:
        seed: Equal seeds make equal plans. Which request is the n-th still depends on time.
        rates: The share of the requests of each kind that something happens to.
        draw: Chooses what happens.
    """

    def __init__(
        self, seed: int, rates: Mapping[Api, float], draw: Callable[[Random], Fault] = any_fault
    ) -> None:
        self._seed = seed
        self._rates: dict[int, float] = {int(api): rate for api, rate in rates.items()}
        self._draw = draw
        self._seen: Counter[int] = Counter()

    def __call__(self, request: Request) -> Fault | None:
        self._seen[request.api] += 1
        rng = Random(f"{self._seed} {int(request.api)} {self._seen[request.api]}")  # noqa: S311 - no secret
        return self._draw(rng) if rng.random() < self._rates.get(request.api, 0.0) else None
