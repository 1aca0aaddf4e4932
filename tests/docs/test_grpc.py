"""The page about gRPC says what the code does."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from contracts.grpc.click_count.v1 import click_count_pb2 as pb
from contracts.grpc.click_count.v1.click_count_pb2_grpc import ClickCountsStub
from servicekit.grpc.errors import invalid
from servicekit.grpc.guard import GrpcLimits
from servicekit.grpc.server import GrpcServer
from servicekit.grpc.table_service import WATCHES_OF_MANY_MAX, WATCHES_OF_MANY_PER_PEER
from servicekit.streams import Streams

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/grpc.md").read_text("utf-8")
SOURCES = [
    *ROOT.glob("libs/servicekit/src/servicekit/grpc/*.py"),
    *ROOT.glob("services/*/src/*/view.py"),
]


def refuse(request: pb.GetRequest, context: Any) -> pb.GetResponse:
    raise invalid("user_id", "must not contain '/'")


@pytest.fixture
def stub() -> Iterator[Any]:
    def register(server: Any) -> None:
        parse, serialize = pb.GetRequest.FromString, pb.GetResponse.SerializeToString
        handlers = {"Get": grpc.unary_unary_rpc_method_handler(refuse, parse, serialize)}
        name = pb.DESCRIPTOR.services_by_name["ClickCounts"].full_name
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))

    limits = GrpcLimits(drain_seconds=0)
    server = GrpcServer("127.0.0.1", 0, register, ready=lambda: True, streams=Streams(), limits=limits)
    with grpc.insecure_channel(server.start()) as channel:
        yield ClickCountsStub(channel)
    server.stop()


def test_every_reason_in_the_code_is_on_the_page_and_the_other_way_round() -> None:
    in_code = {
        name for path in SOURCES for name in re.findall(r'reason="([A-Z_]+)"', path.read_text("utf-8"))
    }
    in_code |= set(
        re.findall(r'[, ]"([A-Z]+_[A-Z_]+|STOPPING)"', SOURCES[0].with_name("errors.py").read_text("utf-8"))
    )
    rows = [line.split("|") for line in PAGE.splitlines() if line.startswith("| ") and "`" in line]
    on_page = {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row[2])}
    codes = {code.name for code in grpc.StatusCode}
    assert on_page - codes == in_code - codes


def test_the_numbers_on_the_page_are_those_of_the_code() -> None:
    limits = GrpcLimits()
    for text in (
        f"at most {limits.deadline_seconds_max:g} seconds",
        f"at most {limits.receive_bytes // 1024} KiB",
        f"headers together {limits.metadata_bytes // 1024} KiB",
        f"its client does not read for {limits.unread_seconds:g} seconds",
        f"carries {limits.connection_streams} calls at a time",
        f"works on {limits.threads} unary calls while {limits.waiting} wait",
        f"keeps {limits.streams:,} streams open",
        f"and {limits.streams_per_peer} to one address",
        f"of these {WATCHES_OF_MANY_MAX}, and {WATCHES_OF_MANY_PER_PEER} to one address, watch many users",
        f"takes {limits.connections:,} connections",
        f"HTTP/2 within {limits.handshake_seconds:g} seconds",
        f"had no call for {limits.connection_idle_seconds:g} seconds",
        f"every {limits.ping_seconds_min:g} seconds",
    ):
        assert text in PAGE, text


def test_the_example_names_the_field_that_is_wrong(stub: Any, capsys: pytest.CaptureFixture[str]) -> None:
    example = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    exec(example, {"stub": stub, "pb": pb})
    assert "user_id must not contain '/'" in capsys.readouterr().out
