"""The options for decoding and entering keys and values: `--schemas`, `--graph`, `--key-type`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from streamtable import Bytes, Long, String
from streamtable.base.ports import Codec, WindowedKeys
from streamtable.errors import DeserializationError, SerializationError
from streamtable.flow import Windowed
from streamtable_admin.decode import Decoder, decoder_for, known_schemas, schemas_in
from streamtable_admin.errors import Refused
from streamtable_cli.modules import load_groups
from streamtable_cli.output import note

Schemas = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="A folder of Avro schemas (*.avsc, also in subfolders); all versions are used."
    ),
]
Graph = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:NAME",
        help="A group or flow whose codecs are used for its topics; MODULE:FUNCTION(TEXT) if a function makes it.",
    ),
]


class KeyType(StrEnum):
    """The conversion of a key from the text on the command line to bytes."""

    TEXT = "text"
    LONG = "long"
    HEX = "hex"


def decoder_of(schemas: Path | None = None, *graphs: str | None) -> Decoder:
    """Return the decoder that the options describe.

    Raises:
        ConfigurationError: `schemas` is not a folder, or a group cannot be loaded.
    """
    found = known_schemas()
    if schemas is not None:
        in_folder, skipped = schemas_in(schemas)
        for line in skipped:
            note(f"note: {line}")
        found = {**found, **in_folder}
    return decoder_for(found, [each for graph in graphs if graph for each in load_groups(graph)])


def key_bytes(text: str, kind: KeyType | None, codec: Codec[Any] | None) -> bytes:
    """Return the bytes of a key given as text: with `kind`, else with the group's codec, else as UTF-8.

    Raises:
        Refused: The text is not such a key.
    """
    if kind is None and codec is not None and not isinstance(codec, String):
        kind = KeyType.LONG if isinstance(codec, Long) else KeyType.HEX if isinstance(codec, Bytes) else None
        if kind is None:
            windowed = isinstance(codec, WindowedKeys)
            try:
                value = json.loads(text)
                return codec.encode(Windowed(*value) if windowed and isinstance(value, list) else value)
            except (TypeError, ValueError, SerializationError, DeserializationError) as error:
                form = (
                    '. A key in a window is a list, such as ["alice", START_MS, END_MS]' if windowed else ""
                )
                raise Refused(
                    f"key {text!r}, read as JSON, does not fit the graph's codec: {error}{form}"
                ) from error
    try:
        match kind:
            case KeyType.LONG:
                if not text.isascii():
                    raise ValueError("digits other than 0 to 9")
                return Long().encode(int(text))
            case KeyType.HEX:
                return bytes.fromhex(text)
            case _:
                return text.encode()
    except (ValueError, SerializationError) as error:
        raise Refused(f"key {text[:100]!r} is no {kind or 'text'}: {error}") from error
