"""Calls made at random from the descriptors of the services, then damaged: the answer is always a documented one.

FAULTS_SEED repeats a run: case n of a seed is always the same. FAULTS_SECONDS is the length of the long form.
"""

import math
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from tests.hostile.grpc_world import COUNTS, REACHES, STATUSES, Scenario, World, check_text, serving

from click_count.windows import click_windows
from contracts.grpc.click_count.v1 import click_count_pb2
from contracts.grpc.tweet_reach.v1 import tweet_reach_pb2
from contracts.grpc.user_status.v1 import user_status_pb2
from localkafka.broker import Broker
from localkafka.fixtures import Topics

SEED: Final = int(os.environ.get("FAULTS_SEED", "20260"))
CASES: Final = 300
"""The number of cases per seed in each test run; the long form tries as many as its time allows."""
THREADS: Final = 8
GROWTH_MB: Final = 100
SERVICES: Final[dict[str, tuple[Scenario, Any]]] = {
    "counts": (COUNTS, click_count_pb2),
    "statuses": (STATUSES, user_status_pb2),
    "reaches": (REACHES, tweet_reach_pb2),
}
CODES: Final = {
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
}
TEXTS: Final = ("", "alice", "bob", "user-", "é 用户", "\0", "/", "\ufffd", "..", "x" * 129, "x" * 5000)
NUMBERS: Final = (0, 1, -1, 5, 1000, 100_000, 100_001, 2**31 - 1, -(2**31))


@pytest.fixture(scope="module", params=SERVICES)
def name(request: pytest.FixtureRequest) -> str:
    """Return the name of the service."""
    return str(request.param)


@pytest.fixture(scope="module")
def world(broker: Broker, name: str) -> Iterator[World]:
    topics = Topics(broker.bootstrap_servers)
    windows = topics.name("windows")
    settings = {}
    if name == "counts":
        settings["CLICK_COUNT_WINDOWS"] = windows
        for table in click_windows(windows).tables.values():
            topics.create(table.name.replace(windows, "windows", 1), config={"cleanup.policy": "compact"})
    try:
        with serving(broker, settings, scenario=SERVICES[name][0]) as world:
            yield world
    finally:
        topics.delete_all()


@pytest.fixture(scope="module")
def methods(name: str) -> Sequence[MethodDescriptor]:
    """The methods of the service, and of health."""
    return [
        method
        for module in (SERVICES[name][1], health_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]


# ---- cases ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One call."""

    path: str
    streams: bool
    body: bytes
    metadata: list[tuple[str, str | bytes]]
    timeout: float | None
    read: int
    cancel: bool


def case_of(methods: Sequence[MethodDescriptor], seed: int, number: int) -> Case:
    chance = random.Random(f"{seed}:{number}")
    method = chance.choice(methods)
    body = message_of(chance, method.input_type, depth=3).SerializeToString()
    for _ in range(chance.choice((0, 0, 1, 1, 2, 8))):
        body = damaged(chance, body)
    return Case(
        path=f"/{method.containing_service.full_name}/{method.name}",
        streams=method.server_streaming,
        body=body,
        metadata=metadata_of(chance),
        timeout=chance.choice((None, 0.0005, 0.002, 0.05, 1.0, 5.0, 6.0, 1e6))
        if chance.random() < 0.4
        else 2.0,
        read=chance.choice((0, 1, 3)),
        cancel=chance.random() < 0.2,
    )


def message_of(chance: random.Random, descriptor: Any, depth: int) -> Any:
    message = GetMessageClass(descriptor)()
    for fields in descriptor.fields:
        if chance.random() < 0.3 or depth == 0:
            continue
        if fields.is_repeated:
            getattr(message, fields.name).extend(
                value_of(chance, fields, depth) for _ in range(chance.choice((0, 1, 3, 30)))
            )
        elif fields.type == FieldDescriptor.TYPE_MESSAGE:
            getattr(message, fields.name).CopyFrom(value_of(chance, fields, depth))
        else:
            setattr(message, fields.name, value_of(chance, fields, depth))
    return message


def value_of(chance: random.Random, described: Any, depth: int) -> Any:
    match described.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            text = chance.choice(TEXTS)
            return text.encode() if described.type == FieldDescriptor.TYPE_BYTES else text
        case FieldDescriptor.CPPTYPE_MESSAGE:
            return message_of(chance, described.message_type, depth - 1)
        case FieldDescriptor.CPPTYPE_BOOL:
            return chance.random() < 0.5
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return chance.choice((0.0, -0.0, 1e300, float("nan"), float("inf")))
        case FieldDescriptor.CPPTYPE_UINT32 | FieldDescriptor.CPPTYPE_UINT64:
            return abs(chance.choice(NUMBERS))
    return chance.choice(NUMBERS)


def damaged(chance: random.Random, body: bytes) -> bytes:
    at = chance.randrange(len(body) + 1)
    flipped = bytes(byte ^ (1 << chance.randrange(8)) if n == at else byte for n, byte in enumerate(body))
    return chance.choice(
        (
            body[:at],
            flipped,
            body + body,
            body[:at] + chance.randbytes(chance.choice((1, 4, 100))) + body[at:],
            # A field that is not known, of any number and wire type.
            body + bytes([chance.randrange(256)]) + chance.randbytes(chance.randrange(12)),
            # A length or number that is too long.
            body[:at] + b"\xff" * chance.randrange(1, 12) + body[at:],
            # Groups within groups.
            body + b"\x7b" * chance.choice((1, 99, 101, 30_000)),
            body + bytes(chance.choice((1, 1000, 65_536, 200_000))),
        )
    )


def metadata_of(chance: random.Random) -> list[tuple[str, str | bytes]]:
    entries: list[tuple[str, str | bytes]] = []
    for _ in range(chance.choice((0, 0, 0, 1, 3, 50))):
        name = chance.choice(("authorization", "x-api-key", "x", "a.b_c-d", "traceparent", "y" * 200))
        if chance.random() < 0.3:
            entries.append((f"{name}-bin", chance.randbytes(chance.choice((0, 1, 3, 300)))))
        else:
            characters = [chr(chance.randrange(0x20, 0x7F)) for _ in range(chance.choice((0, 1, 20, 500)))]
            entries.append((name, "".join(characters).strip()))
    if chance.random() < 0.02:
        entries.append(("z", "z" * 20_000))
    return entries


# ---- runs ----------------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """Threads that try one case after the other until these or the time are over, or a case fails."""

    world: World
    methods: Sequence[MethodDescriptor]
    seed: int
    cases: float
    seconds: float
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def go(self) -> None:
        end = time.monotonic() + self.seconds
        threads = [threading.Thread(target=self._try_all, args=(n, end)) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _try_all(self, first: int, end: float) -> None:
        channel = self.world.channel()
        number = first
        while number < self.cases and time.monotonic() < end and not self.failures:
            case = case_of(self.methods, self.seed, number)
            try:
                self.outcomes[call(channel, case)] += 1
            except Exception as error:  # noqa: BLE001 any error is reported with the input that repeats it
                self.failures.append(f"FAULTS_SEED={self.seed} case {number}: {error!r}: {case}"[:2000])
            number += THREADS


def call(channel: Any, case: Case) -> str:
    """Make the call; its code's name."""
    try:
        if not case.streams:
            channel.unary_unary(case.path)(case.body, timeout=case.timeout, metadata=case.metadata)
            return "OK"
        timeout = min(case.timeout or 0.2, 0.2)  # a watch ends by its deadline, or never
        answers = channel.unary_stream(case.path)(case.body, timeout=timeout, metadata=case.metadata)
        for _ in range(case.read):
            if next(answers, None) is None:
                return "OK"
        if case.cancel or case.read:
            answers.cancel()
            return "CANCELLED"
        code, text = answers.code(), answers.details()
    except grpc.RpcError as error:
        raised: Any = error
        code, text = raised.code(), raised.details()
    if code is grpc.StatusCode.OK:
        return "OK"
    check_text(code, text or "")
    assert code in CODES, (code, text)
    return str(code.name)


def run(
    world: World,
    methods: Sequence[MethodDescriptor],
    seed: int,
    *,
    cases: float = math.inf,
    seconds: float = math.inf,
) -> None:
    before = world.memory_mb()
    sys.stdout.write(f"FAULTS_SEED={seed}\n")
    done = Run(world, methods, seed, cases, seconds)
    done.go()
    grown = world.memory_mb() - before
    sys.stdout.write(f"{sum(done.outcomes.values())} calls, memory +{grown:.0f} MB: {dict(done.outcomes)}\n")
    assert not done.failures, done.failures[0]
    assert sum(done.outcomes.values()) > 100
    assert len(done.outcomes) > 3, "the cases do not reach much"
    assert grown < GROWTH_MB
    world.check_honest()


def test_random_calls_get_documented_answers(world: World, methods: Sequence[MethodDescriptor]) -> None:
    run(world, methods, SEED, cases=CASES)


@pytest.mark.faults_long
@pytest.mark.timeout(7200)
def test_random_calls_get_documented_answers_for_long(
    world: World, methods: Sequence[MethodDescriptor]
) -> None:
    seed = random.SystemRandom().randrange(2**31)
    run(world, methods, seed, seconds=float(os.environ.get("FAULTS_SECONDS", "120")))
