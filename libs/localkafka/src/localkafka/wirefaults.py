"""Faults of Kafka requests and responses in transit, and plans of when they happen."""

import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from random import Random
from typing import Final, Self

_HEADER: Final = struct.Struct(">hhih")


class Api(IntEnum):
    """The API keys that have a name here; requests with other keys are forwarded."""

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
        api: An `Api`, or an API key that has no name here.
        client_id: The client id.
    """

    api: int
    version: int
    correlation_id: int
    client_id: str

    @classmethod
    def parse(cls, frame: bytes) -> Self:
        """Parse the header of a frame without its size."""
        api, version, correlation_id, length = _HEADER.unpack_from(frame)
        name = frame[_HEADER.size : _HEADER.size + max(length, 0)]
        return cls(api, version, correlation_id, name.decode(errors="replace"))


@dataclass(frozen=True, slots=True)
class LoseRequest:
    """The request and all that follow it on its connection are lost; the connection is reset `seconds` later."""

    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """The response and all that follow it are lost; the connection is reset `seconds` later."""

    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class DelayRequest:
    """The request and all that follow it arrive `seconds` later, even if the client has disconnected by then."""

    seconds: float


@dataclass(frozen=True, slots=True)
class DelayAnswer:
    """The response and all that follow it arrive `seconds` later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class CutRequest:
    """The connection is reset after `keep` bytes of the request were forwarded."""

    keep: int


@dataclass(frozen=True, slots=True)
class CutAnswer:
    """The connection is reset after `keep` bytes of the response were forwarded."""

    keep: int


Fault = LoseRequest | LoseAnswer | DelayRequest | DelayAnswer | CutRequest | CutAnswer
Plan = Callable[[Request], Fault | None]


def any_fault(rng: Random) -> Fault:
    """Draw a fault of any kind. Delays are up to 8 s, longer than most timeouts of a commit."""
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
    """A plan that injects a fault into the first requests with one API key.

    Args:
        api: The API key.
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
        """Whether all its faults were injected."""
        return not self._left

    def __str__(self) -> str:
        return f"{self._fault} of {Api(self._api).name}"


class Storm:
    """A plan from a seed. The fault of the n-th request with an API key does not depend on requests with other keys.

    Args:
        seed: Equal seeds make equal plans. Which request is the n-th still depends on timing.
        rates: The share of faulty requests, 0 to 1, by API key.
        draw: Chooses the fault.
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
