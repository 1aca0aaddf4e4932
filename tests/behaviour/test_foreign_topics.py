"""Topics that other programs write: without keys, with tombstones, with headers."""

from typing import Any

import pytest
from tests.behaviour.world import World

from streamtable import Json, NoKey, Stream, String
from streamtable.base.partitioner import Partitioner
from streamtable.flow import Flow

HEADERS = (("ce_type", b"visit"), ("id", b"42"))


@pytest.mark.parametrize("partitioner", ["murmur2", "fnv1a", "crc32"])
def test_records_without_keys_are_given_keys_and_keep_their_headers(
    world: World, partitioner: Partitioner
) -> None:
    visits: Stream[None, Any] = Stream(world.name("visits"), NoKey(), Json(), partitioner=partitioner)
    by_user: Stream[str, Any] = Stream(world.name("by-user-out"), String(), Json())
    flow = Flow(world.name("flow"))
    stream = flow.stream(visits).filter(bool)
    stream.key_by("by-user", lambda visit: visit["user"], key=String()).to(by_user)
    world.create(visits, partitions=2)
    world.create(by_user)
    world.run(*flow.groups, partitions=2)
    for user in ("ann", "bob", "ann"):
        world.emit(visits, None, {"user": user}, headers=HEADERS)
    for key in (b"any", None):
        world.emit_raw(visits.name, key, None, partition=1)
        world.emit_raw(visits.name, key, b'{"user": "eve"}', partition=1)
    world.settle()
    found = sorted((record.key, tuple(record.headers)) for record in world.records(by_user))
    assert found == [("ann", HEADERS), ("ann", HEADERS), ("bob", HEADERS), ("eve", ()), ("eve", ())]
    assert [letter for group in flow.groups for letter in world.dead_letters(group)] == []
