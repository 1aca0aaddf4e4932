"""Flows over topics that other programs partition otherwise: topics of the flow's own follow what they are joined with."""

from typing import Any, get_args

import pytest

from streamtable import Json, Stream, String
from streamtable.base.partitioner import Partitioner
from streamtable.flow import Flow
from streamtable_testing import Tester

USERS = [f"user-{number}" for number in range(20)]
ORDERS = [f"order-{number}" for number in range(20)]


def stream(name: str, partitioner: Partitioner) -> Stream[str, Any]:
    return Stream(name, String(), Json(), partitioner)


@pytest.mark.parametrize("left", get_args(Partitioner))
@pytest.mark.parametrize("right", get_args(Partitioner))
def test_a_join_by_a_foreign_key_finds_all_rows_of_tables_of_any_partitioners(
    tester: Tester, left: Partitioner, right: Partitioner
) -> None:
    orders, users = stream("orders", left), stream("users", right)
    flow = Flow("shop")
    known = flow.stream(users, group="users").to_table("known")
    latest = flow.stream(orders).to_table("latest")
    named = latest.join("named", known, lambda order, user: [order, user], on=str, value=Json())
    kept = named.to_stream().to_table("kept")
    tester.run(flow, partitions=5)
    for user, order in zip(USERS, ORDERS, strict=True):
        tester.emit(users, user, user.upper())
        tester.emit(orders, order, user)
    rows = {order: [user, user.upper()] for user, order in zip(USERS, ORDERS, strict=True)}
    assert dict(tester.table(kept.table)) == rows
    view = tester.view(kept.table)
    assert {order: view.get(order) for order in ORDERS} == rows


@pytest.mark.parametrize("partitioner", get_args(Partitioner))
def test_what_is_brought_beside_a_stream_is_partitioned_as_it(
    tester: Tester, partitioner: Partitioner
) -> None:
    users, clicks = stream("users", partitioner), stream("clicks", "murmur2")
    flow = Flow("shop")
    known = flow.stream(users)
    names = known.to_table("names")
    by_user = flow.stream(clicks, group="clicks").key_by("by-user", str, key=String(), beside=known)
    kept = by_user.join_table(names, lambda click, name: name, value=Json()).to_table("kept")
    tester.run(flow, partitions=5)
    for user in USERS:
        tester.emit(users, user, user.upper())
        tester.emit(clicks, "page", user)
    assert dict(tester.table(kept.table)) == {user: user.upper() for user in USERS}
