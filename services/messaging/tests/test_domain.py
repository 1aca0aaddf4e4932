from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.records import Block, Blocked, Message, MessageCounts, Traffic, Verdict
from messaging.domain import (
    BLOCKERS_MAX,
    TEXT_CHARACTERS_MAX,
    after_block,
    after_verdict,
    both_sides,
    conversations,
    counted,
    folded,
    is_blocked,
    is_blocking,
    is_spammer,
    no_messages,
    translated,
    verdicts,
)


@pytest.mark.parametrize(
    ("sent", "received", "expected"),
    [(19, 0, False), (20, 0, True), (20, 3, True), (20, 4, False), (100, 20, False), (101, 20, True)],
)
def test_a_spammer_wrote_twenty_messages_and_over_five_for_each_one_received(
    sent: int,
    received: int,
    expected: bool,  # noqa: FBT001 - an expected value
) -> None:
    assert is_spammer(sent, received) is expected


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), min_size=1), st.randoms())
def test_counts_and_what_they_say_do_not_depend_on_the_order(
    parts: list[tuple[int, int]], random: Random
) -> None:
    def total() -> MessageCounts:
        row = no_messages()
        for sent, received in parts:
            row = counted(row, Traffic(sent=sent, received=received))
        return row

    expected = total()
    random.shuffle(parts)
    assert total() == expected


def test_a_message_counts_for_both_sides_but_for_none_if_it_is_to_oneself() -> None:
    message = Message(id="a", sender="mallory", recipient="alice", text="", at=0)
    assert dict(both_sides(message)) == {
        "mallory": {"sent": 1, "received": 0},
        "alice": {"sent": 0, "received": 1},
    }
    assert list(both_sides({**message, "recipient": "mallory"})) == []


def verdict(end: int, *, spammer: bool, closed: bool = False) -> Verdict:
    return Verdict(session_end=end, spammer=spammer, closed=closed)


def test_a_session_says_something_of_its_user_from_twenty_sent_messages_on_and_nothing_bad_when_it_has_closed() -> (
    None
):
    few, spam, talk = (
        counted(no_messages(), Traffic(sent=sent, received=received))
        for sent, received in ((19, 0), (20, 0), (20, 4))
    )
    assert list(verdicts("a", 5, few, closed=False)) == list(verdicts("a", 5, few, closed=True)) == []
    assert list(verdicts("a", 5, spam, closed=False)) == [("a", verdict(5, spammer=True))]
    assert list(verdicts("a", 5, spam, closed=True)) == [("a", verdict(5, spammer=False, closed=True))]
    assert list(verdicts("a", 5, talk, closed=False)) == [("a", verdict(5, spammer=False))]


def test_the_latest_session_decides() -> None:
    guilty, innocent = verdict(5, spammer=True), verdict(5, spammer=False)
    assert after_verdict(None, guilty) == guilty
    assert after_verdict(guilty, innocent) == innocent
    assert after_verdict(guilty, verdict(5, spammer=False, closed=True)) is None
    for earlier in (verdict(4, spammer=False), verdict(4, spammer=False, closed=True)):
        assert after_verdict(guilty, earlier) == guilty
    assert [is_blocking(each) for each in (guilty, innocent, None)] == [True, False, False]


def test_whom_everybody_blocks_is_blocked_for_each_recipient() -> None:
    message = Message(id="a", sender="mallory", recipient="alice", text="", at=0)
    assert not is_blocked(message, None)
    assert not is_blocked(message, Blocked(everybody=False, by=["bob"]))
    assert is_blocked(message, Blocked(everybody=False, by=["alice", "bob"]))
    assert is_blocked(message, Blocked(everybody=True, by=[]))


def test_a_block_for_everybody_that_is_taken_back_leaves_those_of_single_users() -> None:
    row = after_block(Blocked(everybody=True, by=["alice"]), Block(by=None, blocked=False))
    assert row == Blocked(everybody=False, by=["alice"])


def test_a_sender_whom_too_many_have_blocked_is_blocked_for_everybody() -> None:
    full = Blocked(everybody=False, by=sorted(f"user-{n}" for n in range(BLOCKERS_MAX)))
    assert after_block(full, Block(by="user-0", blocked=True)) == full
    row = after_block(full, Block(by="one more", blocked=True))
    for by, blocked in [
        (None, True),
        (None, False),
        ("another", True),
        ("another", False),
        ("user-0", False),
    ]:
        row = after_block(row, Block(by=by, blocked=blocked))
        for recipient in ("user-0", "one more", "another", "yet another"):
            message = Message(id="a", sender="mallory", recipient=recipient, text="", at=0)
            assert is_blocked(message, row), (by, blocked, recipient)


@given(st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.booleans())))
def test_the_latest_word_of_each_user_counts(words: list[tuple[str | None, bool]]) -> None:
    row: Blocked | None = None
    for by, blocked in words:
        row = after_block(row, Block(by=by, blocked=blocked))
    latest = dict(words)
    if not any(latest.values()):
        assert row is None
    else:
        assert row == Blocked(
            everybody=latest.get(None, False), by=[user for user in ("a", "b") if latest.get(user)]
        )


def test_whole_words_are_replaced_whatever_their_case_and_replacements_are_left_alone() -> None:
    words = {"rain": "sun", "sun": "moon", "strasse": "road"}
    assert translated("Rain, RAIN and rainbow; Straße! sun", words.get) == "sun, sun and rainbow; road! moon"


def test_a_text_that_has_grown_too_long_is_cut() -> None:
    grown = translated("a " * 500, lambda _: "b" * 100)
    assert (len(grown), grown[0], grown[-1]) == (TEXT_CHARACTERS_MAX, "b", "…")


@given(st.text(max_size=TEXT_CHARACTERS_MAX))
def test_a_text_of_which_no_word_is_replaced_stays_as_it_is(text: str) -> None:
    assert translated(text, lambda _: None) == text


@pytest.mark.parametrize("word", ["", "two words", "a-b", "a" * 65, "a\n", "!"])
def test_what_is_not_one_word_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="one word"):
        folded(word)


def test_made_up_messages_follow_from_the_seed_and_spammers_are_never_written_to() -> None:
    def made(seed: int) -> list[tuple[str, str, str]]:
        users = iter(range(10_000))
        return list(islice(conversations(lambda: f"user-{next(users) % 9}", 3, 0.2, seed), 1000))

    assert made(1) == made(1)
    assert made(1) != made(2)
    senders = [sender for sender, _, _ in made(1)]
    spam = [sender for sender in senders if sender.startswith("spammer-")]
    assert {"spammer-1", "spammer-2", "spammer-3"} == set(spam)
    assert 150 < len(spam) < 250
    assert all(recipient.startswith("user-") for _, recipient, _ in made(1))
