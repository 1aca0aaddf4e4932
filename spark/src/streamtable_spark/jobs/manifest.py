"""The manifest of a rebuild, its inputs and its results: a file that the job writes before it changes anything.

A run that was interrupted is resumed from it: with the same offsets, so that it computes the same table.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import TypeAdapter

from streamtable.base.types import Committed
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.files import RemotePath, write_whole
from streamtable_spark.jobs.positions import Offsets, Place, Spans

State = Literal["begun", "done"]


@dataclass(frozen=True)
class Manifest:
    """The manifest of a rebuild.

    Attributes:
        scenario: The scenario that the table belongs to.
        group: The group whose inputs, retries and dead letters were read.
        as_group: The group whose table was written.
        cluster: Kafka's id of the cluster.
        replace: Whether `as_group` may already have a table and offsets.
        inputs: The offset ranges that were read of each topic; `letters` are the ranges of dead letters.
        offsets: The offsets that are committed for `as_group`.
        before: The committed offsets of `as_group` when the rebuild began; `topic[partition]` -> offset.
        format: The version of this form of a manifest.
        lake: The folder of the lake that was read; None if only Kafka was read.
        code: The version of the jobs, and a digest of their source.
        state: `begun`, or `done` when the offsets are committed.
        table: The digests of the rebuilt table, by partition.
        tables: The digests of the group's other tables, by their names.
        counts: The counts of events.
    """

    scenario: str
    group: str
    as_group: str
    cluster: str
    replace: bool
    inputs: Spans
    letters: Spans
    offsets: Mapping[str, Offsets]
    before: Mapping[str, int]
    code: str
    began: str
    lake: str | None = None
    format: Literal[1] = 1
    state: State = "begun"
    table: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    tables: Mapping[str, Mapping[int, Mapping[str, Any]]] = field(default_factory=dict)

    def save(self, path: Path | RemotePath) -> None:
        """Write the file, whole or not at all."""
        write_whole(path, json.dumps(asdict(self), indent=2) + "\n")


_MANIFEST: Final = TypeAdapter(Manifest)
"""Converts the numbers of partitions, which JSON has as text."""


def load(path: Path | RemotePath) -> Manifest | None:
    """Return the saved manifest; None if there is no file. Raises `ConfigurationError` if the file is no manifest."""
    try:
        return _MANIFEST.validate_json(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        why, _, _ = str(error).partition("\n")
        raise ConfigurationError(f"{path} is no manifest of a rebuild ({why}): name another file") from error


def offsets_before(committed: Mapping[Place, Committed | None]) -> dict[str, int]:
    """Return the committed offsets of a group, in the form of the manifest."""
    return {str(place): each.next_offset for place, each in sorted(committed.items()) if each is not None}


def code_version() -> str:
    """Return the version of the package, with a digest of its source: equal ones compute the same."""
    digest = hashlib.sha256()
    for name, text in sorted(_sources(files("streamtable_spark"), "")):
        digest.update(name.encode() + b"\0" + text)
    try:
        number = version("streamtable-spark")
    except PackageNotFoundError:  # from an archive, as by spark-submit
        number = "0"
    return f"{number}+{digest.hexdigest()[:12]}"


def _sources(folder: Traversable, above: str) -> Iterator[tuple[str, bytes]]:
    """Return the modules of a package, which may be in an archive, by their paths."""
    for each in folder.iterdir():
        if each.is_dir():
            yield from _sources(each, f"{above}{each.name}/")
        elif each.name.endswith(".py"):
            yield f"{above}{each.name}", each.read_bytes()
