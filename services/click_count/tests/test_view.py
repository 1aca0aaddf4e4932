import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status

from click_count.view import ClickCountsService
from contracts.grpc.click_count.v1 import click_count_pb2 as pb
from contracts.grpc.click_count.v1.click_count_pb2_grpc import ClickCountsStub
from localkafka.waiting import Deadline
from servicekit.grpc.guard import GrpcLimits
from servicekit.grpc.server import GrpcServer
from servicekit.streams import Streams

INVALID = grpc.StatusCode.INVALID_ARGUMENT
BAD_IDS = ["", "x" * 129, "a\x00b", "a\nb", "a/b", "\ufffd", ".."]


@pytest.fixture
def channel(counts: Any) -> Iterator[grpc.Channel]:
    streams = Streams(limit=4)
    service = ClickCountsService(counts, streams)
    server = GrpcServer(
        "127.0.0.1",
        0,
        service.register,
        ready=lambda: counts.ready,
        streams=streams,
        limits=GrpcLimits(drain_seconds=0),
    )
    with grpc.insecure_channel(server.start()) as channel:
        yield channel
    server.stop()


@pytest.fixture
def stub(channel: grpc.Channel) -> Any:
    return ClickCountsStub(channel)


def code_of(action: Callable[[], Any]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        action()
    error: Any = caught.value
    assert "Traceback" not in error.details()
    assert "memory" not in error.details().lower()
    code: grpc.StatusCode = error.code()
    return code


def test_a_users_count_comes_with_its_place_and_age(counts: Any, stub: Any) -> None:
    counts.put("alice", 2**40)
    expected = pb.GetResponse(count=2**40, partition=0, offset=1, age_seconds=0.25, stale=False)
    assert stub.Get(pb.GetRequest(user_id="alice"), timeout=5) == expected


def test_an_unknown_user_is_not_found(stub: Any) -> None:
    assert code_of(lambda: stub.Get(pb.GetRequest(user_id="unknown"), timeout=5)) == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("user", BAD_IDS)
def test_what_cannot_be_a_user_id_is_refused(stub: Any, user: str) -> None:
    assert code_of(lambda: stub.Get(pb.GetRequest(user_id=user), timeout=5)) == INVALID
    request = pb.MultiGetRequest(user_ids=["alice", user])
    assert code_of(lambda: stub.MultiGet(request, timeout=5)) == INVALID
    if user:
        assert code_of(lambda: next(stub.Watch(pb.WatchRequest(user_id=user)))) == INVALID


def test_a_deadline_is_asked_for(stub: Any) -> None:
    assert code_of(lambda: stub.Get(pb.GetRequest(user_id="alice"))) == INVALID


def test_many_users_are_answered_in_the_order_of_the_request(counts: Any, stub: Any) -> None:
    for n in range(10):
        counts.put(f"user-{n}", n + 1)
    response = stub.MultiGet(pb.MultiGetRequest(user_ids=["user-9", "unknown", "user-0"]), timeout=5)
    assert [(found.user_id, found.answer.count) for found in response.found] == [
        ("user-9", 10),
        ("user-0", 1),
    ]


def test_a_thousand_users_can_be_asked_for_at_once_and_no_more(counts: Any, stub: Any) -> None:
    users = [f"user-{n}" for n in range(1001)]
    counts.rows = dict.fromkeys(users, 1)
    assert len(stub.MultiGet(pb.MultiGetRequest(user_ids=users[:1000]), timeout=5).found) == 1000
    assert code_of(lambda: stub.MultiGet(pb.MultiGetRequest(user_ids=users), timeout=5)) == INVALID


def scan(stub: Any, **request: Any) -> list[str]:
    return [row.user_id for message in stub.Scan(pb.ScanRequest(**request)) for row in message.rows]


def test_a_scan_goes_through_users_in_order(counts: Any, stub: Any) -> None:
    users = [f"user-{n:04}" for n in range(1234)]
    counts.rows = {"other/é": 1, **dict.fromkeys(users, 1)}
    assert scan(stub, limit=100_000) == ["other/é", *users]
    assert scan(stub, prefix="user-", limit=100_000) == users
    assert scan(stub, prefix="user-", start_after="user-1000", limit=2) == ["user-1001", "user-1002"]
    assert scan(stub, start_after="other/é", limit=1) == ["user-0000"]
    assert len(scan(stub)) == 1000
    assert scan(stub, prefix="unknown") == []


def test_a_scan_says_how_old_it_is(counts: Any, stub: Any) -> None:
    counts.age_seconds = 100.0
    message = next(stub.Scan(pb.ScanRequest()))
    assert (message.age_seconds, message.stale) == (100.0, True)


@pytest.mark.parametrize("limit", [-1, 100_001, 2**31 - 1, -(2**31)])
def test_a_scan_has_a_limit_within_bounds(stub: Any, limit: int) -> None:
    assert code_of(lambda: scan(stub, limit=limit)) == INVALID


def test_a_bad_prefix_is_refused(stub: Any) -> None:
    assert code_of(lambda: scan(stub, prefix="a\x00")) == INVALID
    assert code_of(lambda: next(stub.Watch(pb.WatchRequest(prefix="\ufffd")))) == INVALID


def watched(stub: Any, request: pb.WatchRequest) -> Any:
    changes = stub.Watch(request)
    changes.initial_metadata()  # from here on nothing is missed
    return changes


def test_a_watch_sends_changes_of_its_user(counts: Any, stub: Any) -> None:
    changes = watched(stub, pb.WatchRequest(user_id="alice"))
    counts.put("bob", 1)
    counts.put("alice", 7)
    counts.put("alice", None)
    assert next(changes) == pb.WatchResponse(user_id="alice", count=7, partition=0, offset=2)
    assert next(changes) == pb.WatchResponse(user_id="alice", partition=0, offset=3)
    changes.cancel()


def test_a_watch_without_a_target_sends_all_changes(counts: Any, stub: Any) -> None:
    changes = watched(stub, pb.WatchRequest())
    counts.put("bob", 1)
    assert next(changes).user_id == "bob"
    changes.cancel()


def test_a_watch_that_missed_changes_ends_unavailable(counts: Any, stub: Any) -> None:
    changes = watched(stub, pb.WatchRequest(prefix="a"))
    counts.overrun()
    assert code_of(lambda: next(changes)) == grpc.StatusCode.UNAVAILABLE


def test_a_watch_is_closed_when_its_caller_goes(counts: Any, stub: Any) -> None:
    changes = watched(stub, pb.WatchRequest(prefix="a"))
    assert len(counts.watches) == 1
    changes.cancel()
    end = Deadline(10)
    while counts.watches:
        assert not end.passed()
        time.sleep(0.01)


def test_everything_is_unavailable_until_the_table_is_ready(counts: Any, stub: Any) -> None:
    counts.ready = False
    for action in (
        lambda: stub.Get(pb.GetRequest(user_id="alice"), timeout=5),
        lambda: stub.MultiGet(pb.MultiGetRequest(user_ids=["alice"]), timeout=5),
        lambda: next(stub.Scan(pb.ScanRequest())),
        lambda: next(stub.Watch(pb.WatchRequest())),
    ):
        assert code_of(action) == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("body", [b"\xff" * 50, b"\x0a\x02\xff\xfe", b"\x0a\x05ab", b"\x08\x01" * 1000])
def test_bytes_that_are_no_request_are_an_error_without_a_trace(channel: grpc.Channel, body: bytes) -> None:
    raw: Any = channel
    method = raw.unary_unary("/streamtable.click_count.v1.ClickCounts/Get")
    assert code_of(lambda: method(body, timeout=5)) == INVALID


def test_unary_calls_are_answered_while_all_streams_are_taken(counts: Any, stub: Any) -> None:
    counts.put("alice", 1)
    streams = [watched(stub, pb.WatchRequest()) for _ in range(4)]
    assert code_of(lambda: next(stub.Watch(pb.WatchRequest()))) == grpc.StatusCode.RESOURCE_EXHAUSTED
    answers: list[Any] = []
    asking = [
        threading.Thread(target=lambda: answers.append(stub.Get(pb.GetRequest(user_id="alice"), timeout=5)))
        for _ in range(8)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert len(answers) == 8
    for stream in streams:
        stream.cancel()


def test_an_unreadable_row_is_data_loss_to_who_asks_for_it_and_counted_elsewhere(
    counts: Any, stub: Any
) -> None:
    counts.put("alice", 3)
    counts.spoil("bob")
    counts.put("carol", 5)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Get(pb.GetRequest(user_id="bob"), timeout=5)
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.DATA_LOSS
    (info,) = [
        ErrorInfo.FromString(detail.value)
        for detail in rpc_status.from_call(error).details
        if detail.Is(ErrorInfo.DESCRIPTOR)
    ]
    assert info.reason == "UNREADABLE_ROW"
    assert (info.metadata["topic"], info.metadata["partition"]) == ("counts", "0")
    many = stub.MultiGet(pb.MultiGetRequest(user_ids=["alice", "bob"]), timeout=5)
    assert ([found.user_id for found in many.found], many.unreadable) == (["alice"], ["bob"])
    (page,) = stub.Scan(pb.ScanRequest(), timeout=5)
    assert ([row.user_id for row in page.rows], page.unreadable) == (["alice", "carol"], 1)


def test_a_watch_of_many_leaves_an_unreadable_change_out_and_that_of_one_ends(counts: Any, stub: Any) -> None:
    many, one = stub.Watch(pb.WatchRequest()), stub.Watch(pb.WatchRequest(user_id="bob"))
    for call in (many, one):
        call.initial_metadata()
    counts.spoil("bob")
    counts.put("carol", 5)
    change = next(many)
    assert (change.user_id, change.unreadable) == ("carol", 1)
    assert code_of(lambda: next(one)) is grpc.StatusCode.DATA_LOSS
