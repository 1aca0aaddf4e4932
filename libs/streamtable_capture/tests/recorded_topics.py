"""Topics that the real connector wrote, as `record.py` has recorded them."""

import json
from base64 import b64decode
from dataclasses import dataclass, field
from pathlib import Path

_FOLDER = Path(__file__).with_name("recorded")


@dataclass(frozen=True)
class Recorded:
    """A record of a connector's topic."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, bytes]] = field(default_factory=list)


SCHEMAS = _FOLDER / "avro-schemas.json"
"""The schemas of the forms in Avro, as `FileRegistry` reads them."""


def encoded(text: str | None, form: str) -> bytes | None:
    if text is None:
        return None
    return b64decode(text) if form.startswith("avro") else text.encode()


def recorded(form: str, table: str, schema: str = "public") -> list[Recorded]:
    """Return the records of a table's topic in one form, in their order."""
    found = []
    for line in (_FOLDER / f"{form}.jsonl").read_text(encoding="utf-8").splitlines():
        topic, partition, key, value, timestamp_ms, headers = json.loads(line)
        if topic == f"{schema}.{table}":
            named = [(name, text.encode()) for name, text in headers.items()]
            found.append(
                Recorded(topic, partition, encoded(key, form), encoded(value, form), timestamp_ms, named)
            )
    assert found, f"no records of {table} in {form}.jsonl"
    return found
