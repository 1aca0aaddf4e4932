"""Calls over real connections within this machine."""

from collections.abc import Iterable
from contextlib import closing

from contracts.grpc.query.v1 import query_pb2
from streamtable_query import QueryAddress, QueryServer
from streamtable_query.channels import Channels
from streamtable_query.protocol import VERSION
from streamtable_query.sources import FoundRows, Page

LARGE = b"x" * (5 << 20)
"""More than gRPC receives by default."""


class Echo:
    """Has a row for each key, which is the key; a `RowSource`."""

    group = "g"

    def topic_id(self, table: str) -> str:
        return "id"

    def get(self, table: str, partition: int, keys: Iterable[bytes], stale_ok: float | None) -> FoundRows:
        return FoundRows(list(keys), 1, 0.0, "task")

    def page(
        self, table: str, partition: int, start: bytes | None, end: bytes | None, stale_ok: float | None
    ) -> Page:
        raise NotImplementedError


def test_keys_and_rows_may_be_larger_than_grpc_takes_by_itself() -> None:
    with (
        QueryServer(Echo(), "127.0.0.1:0") as server,
        closing(Channels(None, None, None, None, "t")) as channels,
    ):
        stub = channels.stub(QueryAddress("127.0.0.1", server.port))
        request = query_pb2.GetRequest(version=VERSION, group="g", table="t", topic_id="id", keys=[LARGE])
        found = stub.Get(request, timeout=30)
        assert found.rows[0].value == LARGE
