"""Typed records, generated from proto/avro by libs/contracts/generate.py. Do not edit."""

from typing import TypedDict

from contracts.schema import RecordSchema


class UserClick(TypedDict):
    """A user has clicked on a link."""

    id: str
    """UUID given by the emitter or its caller, so that a repeated request can be recognised. Plain text: the logical type uuid would make an object of each one read, which nobody here needs."""
    user_id: str
    """Who clicked; also the key of the record."""
    url: str
    """What was clicked on."""
    at: int
    """When: milliseconds since 1970 in UTC. Plain number: the logical type timestamp-millis would make an object of each one read, which nobody here needs."""


USER_CLICK: RecordSchema[UserClick] = RecordSchema(
    row=UserClick,
    name='streamtable.clicks.UserClick',
    schema='{"type":"record","name":"UserClick","namespace":"streamtable.clicks","fields":[{"name":"id","type":"string"},{"name":"user_id","type":"string"},{"name":"url","type":"string"},{"name":"at","type":"long"}]}',
    fingerprint=0x7523aefae057b5e4,
    history=(
        '{"type":"record","name":"UserClick","namespace":"streamtable.clicks","fields":[{"name":"id","type":"string"},{"name":"user_id","type":"string"},{"name":"url","type":"string"},{"name":"at","type":"long"}]}',
    ),
)
