"""Keys given on the command line, and the schemas that it uses."""

from pathlib import Path
from typing import Any

import pytest

from streamtable import Bytes, Json, Long, String
from streamtable.errors import ConfigurationError
from streamtable_admin.decode import known_schemas
from streamtable_admin.errors import Refused
from streamtable_cli.decoding import KeyType, decoder_of, key_bytes


def test_a_schema_that_cannot_be_used_is_skipped_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.avsc").write_text("{")
    (tmp_path / "worse.avsc").write_bytes(b"\xff")
    assert decoder_of(tmp_path).schemas.keys() == known_schemas().keys()
    err = capsys.readouterr().err
    assert "bad.avsc was skipped" in err
    assert "worse.avsc was skipped" in err


def test_the_schemas_option_must_be_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not a folder"):
        decoder_of(tmp_path / "none")


@pytest.mark.parametrize(
    ("text", "kind", "codec", "expected"),
    [
        ("alice", None, None, b"alice"),
        ("alice", None, String(), b"alice"),
        ("7", KeyType.TEXT, Long(), b"7"),
        ("7", None, Long(), bytes(7) + b"\x07"),
        ("-1", KeyType.LONG, None, b"\xff" * 8),
        ("00ff", None, Bytes(), b"\x00\xff"),
        ('{"a": 1}', None, Json(), b'{"a":1}'),
        ("", None, None, b""),
    ],
)
def test_a_key_given_as_text_becomes_the_bytes_of_its_type(
    text: str, kind: KeyType | None, codec: Any, expected: bytes
) -> None:
    assert key_bytes(text, kind, codec) == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", KeyType.LONG),
        ("1e3", KeyType.LONG),
        ("9223372036854775808", KeyType.LONG),
        ("\uff17", KeyType.LONG),
        ("9" * 5000, KeyType.LONG),
        ("0x1", KeyType.HEX),
        ("abc", KeyType.HEX),
        ("\ud800", KeyType.TEXT),
    ],
)
def test_a_text_that_is_not_a_key_of_that_type_is_rejected(text: str, kind: KeyType) -> None:
    with pytest.raises(Refused, match=f"is no {kind}"):
        key_bytes(text, kind, None)
