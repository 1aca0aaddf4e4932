"""The gRPC server over TLS: who speaks it right is served, and who does not is hung up on."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest
from tests.hostile.grpc_world import ROWS, World, serving

from contracts.grpc.click_count.v1 import click_count_pb2 as pb
from contracts.grpc.click_count.v1.click_count_pb2_grpc import ClickCountsStub
from localkafka.broker import Broker
from localkafka.certificates import Authority, Pair

AUTHORITY = Authority("authority")
STRANGER = Authority("stranger")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="streamtable-certificates-") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def world(broker: Broker, folder: Path) -> Iterator[World]:
    """A service with TLS for all callers."""
    certificate, key = AUTHORITY.issue("server").write(folder, "server")
    settings = {
        "SERVICEKIT_GRPC_CERTIFICATE_FILE": str(certificate),
        "SERVICEKIT_GRPC_KEY_FILE": str(key),
    }
    with serving(broker, settings, root_certificate=AUTHORITY.certificate) as world:
        yield world


@pytest.fixture(scope="module")
def strict_world(broker: Broker, folder: Path) -> Iterator[World]:
    """Wants certificates of its callers."""
    certificate, key = AUTHORITY.issue("server").write(folder, "strict")
    authorities = folder / "authorities.crt"
    authorities.write_bytes(AUTHORITY.certificate)
    settings = {
        "SERVICEKIT_GRPC_CERTIFICATE_FILE": str(certificate),
        "SERVICEKIT_GRPC_KEY_FILE": str(key),
        "SERVICEKIT_GRPC_CLIENT_AUTHORITIES_FILE": str(authorities),
    }
    caller = AUTHORITY.issue("caller")
    with serving(broker, settings, root_certificate=AUTHORITY.certificate, certificate=caller) as world:
        yield world


def count_of_alice(channel: grpc.Channel) -> int | grpc.StatusCode:
    stub: Any = ClickCountsStub(channel)
    with channel:
        try:
            count: int = stub.Get(pb.GetRequest(user_id="alice"), timeout=5).count
        except grpc.RpcError as error:
            raised: Any = error
            code: grpc.StatusCode = raised.code()
            return code
    return count


def secure(world: World, root: bytes, pair: Pair | None = None) -> grpc.Channel:
    key, certificate = (pair.key, pair.certificate) if pair else (None, None)
    return grpc.secure_channel(world.address, grpc.ssl_channel_credentials(root, key, certificate))


def test_who_trusts_the_authority_is_served(world: World) -> None:
    assert count_of_alice(secure(world, AUTHORITY.certificate)) == ROWS["alice"]


def test_who_does_not_trust_it_hangs_up(world: World) -> None:
    assert count_of_alice(secure(world, STRANGER.certificate)) == grpc.StatusCode.UNAVAILABLE
    world.check_honest()


def test_plain_text_is_hung_up_on(world: World) -> None:
    answer = count_of_alice(grpc.insecure_channel(world.address))
    assert answer in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
    world.check_honest()


def test_a_renewed_certificate_counts_for_those_who_come_later(world: World, folder: Path) -> None:
    other = Authority("other")
    assert count_of_alice(secure(world, other.certificate)) == grpc.StatusCode.UNAVAILABLE
    other.issue("server").write(folder, "server")
    assert count_of_alice(secure(world, other.certificate)) == ROWS["alice"]
    AUTHORITY.issue("server").write(folder, "server")
    world.check_honest()


@pytest.mark.parametrize("pair", [None, STRANGER.issue("caller")], ids=["none", "of a stranger"])
def test_callers_without_a_certificate_of_the_authority_are_not_served(
    strict_world: World, pair: Pair | None
) -> None:
    answer = count_of_alice(secure(strict_world, AUTHORITY.certificate, pair))
    assert answer == grpc.StatusCode.UNAVAILABLE
    strict_world.check_honest()


def test_callers_with_a_certificate_of_the_authority_are_served(strict_world: World) -> None:
    strict_world.check_honest()
