from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from contracts.grpc.user_status.v1 import user_status_pb2 as pb
from contracts.grpc.user_status.v1.user_status_pb2_grpc import UserStatusesStub
from contracts.records import UserStatus
from servicekit.grpc.guard import GrpcLimits
from servicekit.grpc.server import GrpcServer
from servicekit.streams import Streams
from servicekit_testing import MemoryTable
from user_status.view import UserStatusesService

LUNCH = UserStatus(status="at lunch", at=2**40, id="b", clicks=3)
MESSAGE = pb.Status(status="at lunch", at=2**40, id="b", clicks=3)
INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture
def stub(statuses: MemoryTable[UserStatus]) -> Iterator[Any]:
    streams = Streams(limit=4)
    service = UserStatusesService(statuses, streams)
    server = GrpcServer(
        "127.0.0.1",
        0,
        service.register,
        ready=lambda: statuses.ready,
        streams=streams,
        limits=GrpcLimits(drain_seconds=0),
    )
    with grpc.insecure_channel(server.start()) as channel:
        yield UserStatusesStub(channel)
    server.stop()


def code_of(action: Callable[[], Any]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        action()
    error: Any = caught.value
    code: grpc.StatusCode = error.code()
    return code


def test_a_users_status_comes_with_its_place_and_age(statuses: MemoryTable[UserStatus], stub: Any) -> None:
    statuses.put("alice", LUNCH)
    expected = pb.GetResponse(status=MESSAGE, partition=0, offset=1, age_seconds=0.25, stale=False)
    assert stub.Get(pb.GetRequest(user_id="alice"), timeout=5) == expected


def test_an_unknown_user_is_not_found(stub: Any) -> None:
    assert code_of(lambda: stub.Get(pb.GetRequest(user_id="unknown"), timeout=5)) == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("user", ["", "x" * 129, "a/b", ".."])
def test_what_cannot_be_a_user_id_is_refused(stub: Any, user: str) -> None:
    assert code_of(lambda: stub.Get(pb.GetRequest(user_id=user), timeout=5)) == INVALID
    request = pb.MultiGetRequest(user_ids=["alice", user])
    assert code_of(lambda: stub.MultiGet(request, timeout=5)) == INVALID


def test_many_users_are_answered_in_the_order_of_the_request(
    statuses: MemoryTable[UserStatus], stub: Any
) -> None:
    for user in ("alice", "bob"):
        statuses.put(user, LUNCH)
    response = stub.MultiGet(pb.MultiGetRequest(user_ids=["bob", "unknown", "alice"]), timeout=5)
    assert [found.user_id for found in response.found] == ["bob", "alice"]
    assert response.found[0].answer.status == MESSAGE


def test_a_scan_goes_through_users_in_order(statuses: MemoryTable[UserStatus], stub: Any) -> None:
    users = [f"user-{n:04}" for n in range(1234)]
    statuses.rows = dict.fromkeys(["other/é", *users], LUNCH)
    request = pb.ScanRequest(prefix="user-", limit=100_000)
    rows = [row for message in stub.Scan(request) for row in message.rows]
    assert [row.user_id for row in rows] == users
    assert rows[0].status == MESSAGE


def test_a_watch_sends_changes_and_deletions_of_its_user(
    statuses: MemoryTable[UserStatus], stub: Any
) -> None:
    changes = stub.Watch(pb.WatchRequest(user_id="alice"))
    changes.initial_metadata()  # from here on nothing is missed
    statuses.put("bob", LUNCH)
    statuses.put("alice", LUNCH)
    statuses.put("alice", None)
    assert next(changes) == pb.WatchResponse(user_id="alice", status=MESSAGE, partition=0, offset=2)
    deleted = next(changes)
    assert not deleted.HasField("status")
    assert deleted.offset == 3
    changes.cancel()


def test_everything_is_unavailable_until_the_table_is_ready(
    statuses: MemoryTable[UserStatus], stub: Any
) -> None:
    statuses.ready = False
    for action in (
        lambda: stub.Get(pb.GetRequest(user_id="alice"), timeout=5),
        lambda: stub.MultiGet(pb.MultiGetRequest(user_ids=["alice"]), timeout=5),
        lambda: next(stub.Scan(pb.ScanRequest())),
        lambda: next(stub.Watch(pb.WatchRequest())),
    ):
        assert code_of(action) == grpc.StatusCode.UNAVAILABLE
