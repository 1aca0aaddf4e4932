"""The versions of a schema: whether data that one of them has written can be read by another one."""

from collections.abc import Sequence

from exactavro.errors import Unusable
from exactavro.resolving import make_reader
from exactavro.schema import Schema


def fingerprint(schema: str) -> str:
    """Return the fingerprint of the JSON text of a schema as people read it: 16 digits, the most significant first."""
    return Schema.load(schema).fingerprint[::-1].hex()


def unresolvable(written: str, reading: str) -> str:
    """Return why some data of one schema cannot be read by another one, both JSON texts; "" if all data can be."""
    try:
        make_reader(Schema.load(written), Schema.load(reading), whole=True)
    except Unusable as error:
        return str(error)
    return ""


def unknown(written: str, versions: Sequence[str]) -> str:
    """Return why data with a fingerprint cannot be told from other data; "" if it can be.

    Args:
        written: The fingerprint of the schema that has written it, as `fingerprint` returns it.
        versions: The JSON texts of the schemas that are known by fingerprint; empty if data names its schema in another way.
    """
    if not versions or written in map(fingerprint, versions):
        return ""
    return (
        f"the schema {written} was written, and is none of those that are read. Give a constant whose history has it; "
        "the schema of keys, and of Plain() rows, must stay as it is"
    )
