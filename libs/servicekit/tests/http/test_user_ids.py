import pytest

from servicekit.http.problems import Problem
from servicekit.http.user_ids import user_of_path
from servicekit.tables.user_ids import user_id, user_id_prefix


@pytest.mark.parametrize(
    "text", ["a", "alice", "é", "用户", "a b", "a%2fb", "x" * 128, "🂡" * 128, "...", "a'\"<>&"]
)
def test_user_ids_are_free_text(text: str) -> None:
    assert user_id(text) == text


@pytest.mark.parametrize(
    "text", ["", "x" * 129, "a\x00", "a\nb", "\x7f", "\x85", "\ufffd", chr(0xD800), "a/b", ".", ".."]
)
def test_characters_that_are_unsafe_in_urls_and_logs_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must ") as caught:
        user_id(text)
    assert not text.strip() or text not in str(caught.value) or text in "/."


@pytest.mark.parametrize(
    "code_point", [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
)
def test_bidirectional_control_characters_are_rejected(code_point: int) -> None:
    for text in (f"{chr(code_point)}alice", f"ali{chr(code_point)}ce"):
        with pytest.raises(ValueError, match=r"^must not contain bidirectional control characters$"):
            user_id(text)
        with pytest.raises(ValueError, match="bidirectional"):
            user_id_prefix(text)
    assert user_id("אבג") == "אבג"  # letters that are written from right to left
    assert user_id("a\u200db") == "a\u200db"  # joins, as emoji need it


def test_composed_and_decomposed_forms_are_different_users() -> None:
    assert user_id("é") != user_id("e\u0301")


def test_a_prefix_may_be_empty_and_follows_the_rules_of_ids() -> None:
    assert user_id_prefix("") == ""
    for text in ("\x00", "\ufffd", "a/", "x" * 129):
        with pytest.raises(ValueError, match=r"^must "):
            user_id_prefix(text)


def test_an_invalid_user_in_a_path_is_reported_like_other_invalid_parameters() -> None:
    assert user_of_path("alice") == "alice"
    with pytest.raises(Problem) as caught:
        user_of_path("a/b")
    assert caught.value.status == 422
    assert caught.value.members["errors"][0]["where"] == "path.user"
