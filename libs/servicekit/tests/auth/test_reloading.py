import os
from hashlib import sha256
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from servicekit.auth.authentication import ApiKey, ApiKeys, Unauthenticated
from servicekit.auth.reloading import LOOK_SECONDS, WITHOUT_FILE_SECONDS, Reloading


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def read(content: bytes) -> ApiKeys:
    """The file's content is the key."""
    if content == b"":
        raise ValueError("it has no key")
    return ApiKeys([ApiKey("caller", frozenset({"read"}), sha256(content).digest())])


def accepts(keys: Reloading, key: str) -> bool:
    try:
        keys.authenticate(key)
    except Unauthenticated:
        return False
    return True


def test_a_key_that_is_replaced_in_the_file_is_valid_a_second_later(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys", Clock()
    path.write_bytes(b"old")
    keys = Reloading(path, read, clock)
    draft = tmp_path / "draft"
    draft.write_bytes(b"new")
    draft.replace(path)
    assert accepts(keys, "old")
    clock.now += LOOK_SECONDS
    with capture_logs() as logged:
        assert not accepts(keys, "old")
    assert accepts(keys, "new")
    assert [each["event"] for each in logged] == ["files reloaded"]


def test_the_previous_keys_stay_valid_while_the_file_is_invalid_or_missing(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys", Clock()
    path.write_bytes(b"secret")
    keys = Reloading(path, read, clock)
    path.write_bytes(b"")
    clock.now += LOOK_SECONDS
    with capture_logs() as logged:
        assert accepts(keys, "secret")
    assert [each["log_level"] for each in logged] == ["warning"]
    assert "secret" not in str(logged[0]["reason"])
    path.unlink()
    clock.now += LOOK_SECONDS
    assert accepts(keys, "secret")
    path.write_bytes(b"later")
    clock.now += LOOK_SECONDS
    assert accepts(keys, "later")
    assert not accepts(keys, "secret")


def test_a_file_that_becomes_readable_after_it_was_put_in_place_is_read(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys", Clock()
    path.write_bytes(b"old")
    readable = True

    def guarded(content: bytes) -> ApiKeys:
        if not readable:
            raise PermissionError("it is not readable")
        return read(content)

    keys = Reloading(path, guarded, clock)
    draft = tmp_path / "draft"
    draft.write_bytes(b"new")
    readable = False
    draft.replace(path)
    clock.now += LOOK_SECONDS
    with capture_logs() as logged:
        assert accepts(keys, "old")
        clock.now += LOOK_SECONDS
        assert accepts(keys, "old")
    assert len(logged) == 1  # the same reason is logged once
    readable = True
    clock.now += LOOK_SECONDS
    assert not accepts(keys, "old")
    assert accepts(keys, "new")


@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_no_key_is_valid_a_minute_after_its_file_was_removed_or_emptied(tmp_path: Path, how: str) -> None:
    path, clock = tmp_path / "keys", Clock()
    path.write_bytes(b"revoked")
    keys = Reloading(path, read, clock)
    if how == "removed":
        path.unlink()
    else:
        path.write_bytes(b"")
    clock.now += LOOK_SECONDS
    assert accepts(keys, "revoked")
    clock.now += WITHOUT_FILE_SECONDS + LOOK_SECONDS
    assert not accepts(keys, "revoked")
    path.write_bytes(b"later")
    clock.now += LOOK_SECONDS
    assert accepts(keys, "later")


def test_the_file_is_checked_once_a_second_and_read_when_it_has_changed(tmp_path: Path) -> None:
    path, clock, reads = tmp_path / "keys", Clock(), []
    path.write_bytes(b"key")

    def counted(content: bytes) -> ApiKeys:
        reads.append(content)
        return read(content)

    keys = Reloading(path, counted, clock)
    for _ in range(100):
        clock.now += LOOK_SECONDS / 10
        assert accepts(keys, "key")
    assert len(reads) == 1
    os.utime(path, ns=(1, 1))
    clock.now += LOOK_SECONDS
    assert accepts(keys, "key")
    assert len(reads) == 2


def test_an_invalid_file_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Reloading(tmp_path / "none", read)
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="no key"):
        Reloading(tmp_path / "empty", read)
