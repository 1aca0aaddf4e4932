import pytest

from servicekit.http.cursors import BadCursor, Cursors

SECRET = b"0123456789abcdef"


@pytest.mark.parametrize("position", ["", "alice", "é/\x00 %", "x" * 500])
def test_a_cursor_yields_its_position_for_the_same_query(position: str) -> None:
    cursors = Cursors(SECRET)
    assert cursors.open("prefix=a", cursors.seal("prefix=a", position)) == position


def test_replicas_with_the_same_secret_accept_each_others_cursors() -> None:
    assert Cursors(SECRET).open("q", Cursors(SECRET).seal("q", "p")) == "p"


def test_a_cursor_of_an_earlier_version_is_read() -> None:
    """During a rolling update, callers move between replicas of both versions."""
    assert Cursors(SECRET).open("prefix=a", "EzSJEFFmschZCB7jUA0kYWFsaWNl") == "alice"


def test_a_cursor_of_another_query_or_secret_is_refused() -> None:
    cursor = Cursors(SECRET).seal("q", "p")
    for cursors, query in ((Cursors(SECRET), "r"), (Cursors(SECRET[::-1]), "q")):
        with pytest.raises(BadCursor):
            cursors.open(query, cursor)


def test_query_and_position_cannot_be_shifted_into_each_other() -> None:
    assert Cursors(SECRET).seal("ab", "c")[:20] != Cursors(SECRET).seal("a", "bc")[:20]


def test_every_changed_character_is_detected() -> None:
    cursors = Cursors(SECRET)
    cursor = cursors.seal("q", "abc")  # 19 bytes: in the last character two bits carry nothing
    for index in range(len(cursor) - 1):
        other = "A" if cursor[index] != "A" else "B"
        with pytest.raises(BadCursor):
            cursors.open("q", cursor[:index] + other + cursor[index + 1 :])


@pytest.mark.parametrize("cursor", ["", "A", "AAAA", "é", "\x00", "=", "A" * 3001, "A" * 3000, "\ud800", "🂡"])
def test_invalid_cursors_are_rejected(cursor: str) -> None:
    with pytest.raises(BadCursor):
        Cursors(SECRET).open("q", cursor)


@pytest.mark.parametrize("position", ["x" * 2235, "\U0001f600" * 2048])
def test_a_cursor_of_a_key_of_any_length_is_read(position: str) -> None:
    """A key of a table may have any length; an address that is too long is refused before its cursor is read."""
    cursors = Cursors(SECRET)
    assert cursors.open("q", cursors.seal("q", position)) == position


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        Cursors(b"short")
