"""The groups on the Tester: the engine's own code, without a broker."""

from itertools import count, islice

import pytest

from contracts.records import Block, Message, Translation
from messaging.commands import ROLES
from messaging.domain import FEED_MESSAGES, SPAM_SENT_MIN
from messaging.groups import (
    BLOCKER,
    BLOCKS,
    COLLECTOR,
    DETECTOR,
    FILTER,
    GROUPS,
    LAST_VERDICT,
    MESSAGES,
    MESSAGES_FILTERED,
    SESSIONS,
    TRANSLATIONS,
    TRANSLATOR,
)
from messaging.load import messages
from servicekit.process.load import LoadOptions
from streamtable_testing import Tester

NOON_MS = 1_700_000_000_000  # when the Tester's clock begins
GAP_MS = SESSIONS.gap_ms
OPEN_MS = SESSIONS.closes_at(0, 0)
"""The duration that a session stays open after its last message."""
COUNTING = DETECTOR.group("by-user")
BLOCKED = {"by": None, "blocked": True}
TAKEN_BACK = {"by": None, "blocked": False}
_ids = count()


def message(
    sender: str, recipient: str, text: str = "hello", identity: str | None = None, at: int = 0
) -> Message:
    return Message(
        id=identity or f"id-{next(_ids)}", sender=sender, recipient=recipient, text=text, at=NOON_MS + at
    )


def write(tester: Tester, sender: str, recipient: str, text: str = "hello", at: int = 0) -> None:
    sent = message(sender, recipient, text, at=at)
    tester.emit(MESSAGES, sender, sent, timestamp_ms=sent["at"])  # accepted when it was sent


def spam(tester: Tester, sender: str = "mallory", number: int = SPAM_SENT_MIN, at: int = 0) -> None:
    for each in range(number):
        write(tester, sender, f"user-{each}", at=at)


def write_everywhere(tester: Tester, at: int) -> None:
    """Write so many messages that each of two partitions has some of that time."""
    for number in range(4):
        write(tester, f"other-{number}", "carol", at=at)


def reports(tester: Tester) -> list[tuple[str | None, Block | None]]:
    return [(each.key, each.value) for each in tester.records(BLOCKS)]


def sessions(tester: Tester, user: str) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the numbers of messages that a user has sent and received, by the bounds of the sessions since noon."""
    rows = tester.table(COUNTING, COUNTING.states[0]).items()
    return {
        (session.start_ms - NOON_MS, session.end_ms - NOON_MS): (row["sent"], row["received"])
        for session, row in rows
        if session.key == user
    }


def texts(tester: Tester, user: str) -> list[tuple[str, str]]:
    feed = tester.table(COLLECTOR).get(user)
    return [(each["sender"], each["text"]) for each in feed["messages"]] if feed else []


def test_the_blocker_keeps_who_has_blocked_a_sender_and_forgets_senders_without_blockers(
    tester: Tester,
) -> None:
    tester.run(BLOCKER)
    for who in ("bob", "alice", "bob"):
        tester.emit(BLOCKS, "mallory", Block(by=who, blocked=True))
    assert tester.table(BLOCKER) == {"mallory": {"everybody": False, "by": ["alice", "bob"]}}
    for who in ("bob", "alice"):
        tester.emit(BLOCKS, "mallory", Block(by=who, blocked=False))
    assert tester.table(BLOCKER) == {}


def test_the_translator_keeps_replacements_and_forgets_those_that_are_taken_back(tester: Tester) -> None:
    tester.run(TRANSLATOR)
    tester.emit(TRANSLATIONS, "colour", Translation(replacement="color"))
    tester.emit(TRANSLATIONS, "rain", Translation(replacement="sun"))
    tester.emit(TRANSLATIONS, "rain", Translation(replacement=None))
    assert tester.table(TRANSLATOR) == {"colour": "color"}


def test_the_filter_drops_what_the_recipient_has_blocked_and_nothing_else(tester: Tester) -> None:
    tester.run(BLOCKER, TRANSLATOR, FILTER, partitions=3)
    tester.emit(BLOCKS, "mallory", Block(by="alice", blocked=True))
    write(tester, "mallory", "alice")
    write(tester, "mallory", "bob")
    write(tester, "bob", "alice")
    passed = {(each.key, each.value["sender"]) for each in tester.records(MESSAGES_FILTERED) if each.value}
    assert passed == {("bob", "mallory"), ("alice", "bob")}


def test_the_filter_replaces_words_as_the_translator_says_at_the_moment(tester: Tester) -> None:
    tester.run(BLOCKER, TRANSLATOR, FILTER, COLLECTOR)
    write(tester, "bob", "alice", "Rain, rain!")
    tester.emit(TRANSLATIONS, "rain", Translation(replacement="sun"))
    write(tester, "bob", "alice", "Rain, rain!")
    assert texts(tester, "alice") == [("bob", "Rain, rain!"), ("bob", "sun, sun!")]


def test_the_collector_keeps_the_latest_messages_of_each_recipient(tester: Tester) -> None:
    tester.run(COLLECTOR)
    tester.emit(MESSAGES_FILTERED, "bob", message("alice", "bob"))
    for number in range(FEED_MESSAGES + 5):
        tester.emit(MESSAGES_FILTERED, "alice", message("bob", "alice", str(number)))
    assert texts(tester, "alice") == [("bob", str(number)) for number in range(5, FEED_MESSAGES + 5)]
    assert texts(tester, "bob") == [("alice", "hello")]


def test_a_message_that_was_sent_twice_is_in_the_feed_once(tester: Tester) -> None:
    tester.run(COLLECTOR)
    for _ in range(2):
        tester.emit(MESSAGES_FILTERED, "alice", message("bob", "alice", identity="the same"))
    assert texts(tester, "alice") == [("bob", "hello")]


def test_the_detector_counts_what_users_in_different_partitions_sent_and_received(tester: Tester) -> None:
    tester.run(DETECTOR, partitions=4)
    for at in range(3):
        write(tester, "alice", "bob", at=at)
    write(tester, "bob", "alice", at=5)
    write(tester, "bob", "bob", at=6)
    assert sessions(tester, "alice") == {(0, 5): (3, 1)}
    assert sessions(tester, "bob") == {(0, 5): (1, 3)}


def test_a_spammer_is_reported_once_and_no_user_gets_their_messages_from_then_on(tester: Tester) -> None:
    tester.run(FILTER, COLLECTOR, BLOCKER, TRANSLATOR, DETECTOR, partitions=2)
    spam(tester, number=SPAM_SENT_MIN + 10)
    assert reports(tester) == [("mallory", BLOCKED)]
    assert len(tester.records(MESSAGES_FILTERED)) == SPAM_SENT_MIN
    write(tester, "alice", "bob")
    assert texts(tester, "bob") == [("alice", "hello")]


def test_a_spammer_who_gives_one_id_to_all_messages_is_found(tester: Tester) -> None:
    tester.run(DETECTOR, partitions=2)
    for number in range(SPAM_SENT_MIN):
        sent = message("mallory", f"user-{number}", identity="the same")
        tester.emit(MESSAGES, "mallory", sent, timestamp_ms=sent["at"])
    assert reports(tester) == [("mallory", BLOCKED)]


def test_a_message_that_is_sent_again_counts_once_for_the_detector(tester: Tester) -> None:
    tester.run(DETECTOR)
    for _ in range(2):
        sent = message("alice", "bob", identity="the same")
        tester.emit(MESSAGES, "alice", sent, timestamp_ms=sent["at"])
    assert sessions(tester, "alice") == {(0, 0): (1, 0)}


def test_a_spammer_gets_through_again_when_their_session_has_closed_but_for_those_who_have_blocked_them(
    tester: Tester,
) -> None:
    tester.run(FILTER, COLLECTOR, BLOCKER, TRANSLATOR, DETECTOR, partitions=2)
    tester.emit(BLOCKS, "mallory", Block(by="alice", blocked=True))
    spam(tester)
    spam(tester, at=GAP_MS)  # dropped, and yet it makes the session longer
    write_everywhere(tester, at=GAP_MS + OPEN_MS - 1)
    assert tester.table(BLOCKER) == {"mallory": {"everybody": True, "by": ["alice"]}}
    write_everywhere(tester, at=GAP_MS + OPEN_MS)
    assert reports(tester)[1:] == [("mallory", BLOCKED), ("mallory", TAKEN_BACK)]
    assert tester.table(BLOCKER) == {"mallory": {"everybody": False, "by": ["alice"]}}
    for recipient in ("alice", "bob"):
        write(tester, "mallory", recipient, "sorry", at=GAP_MS + OPEN_MS)
    assert texts(tester, "alice") == []
    assert texts(tester, "bob")[-1] == ("mallory", "sorry")


def test_a_session_of_a_user_of_whom_nothing_more_is_heard_closes_with_the_clock(tester: Tester) -> None:
    tester.run(DETECTOR, BLOCKER, partitions=3)
    spam(tester)
    for _ in range(OPEN_MS // 10_000):
        tester.advance(10)
    assert reports(tester) == [("mallory", BLOCKED)]
    for _ in range(4):  # so long a silence is none yet
        tester.advance(10)
    assert reports(tester) == [("mallory", BLOCKED), ("mallory", TAKEN_BACK)]
    group = DETECTOR.group("verdicts")
    assert tester.table(group, LAST_VERDICT) == {}


def test_a_spammer_is_reported_once_for_each_session(tester: Tester) -> None:
    tester.run(DETECTOR)
    for at in (0, 2 * OPEN_MS, 4 * OPEN_MS):
        spam(tester, at=at)
    assert reports(tester) == [
        ("mallory", each) for each in (BLOCKED, TAKEN_BACK, BLOCKED, TAKEN_BACK, BLOCKED)
    ]


def test_spam_within_the_grace_of_the_last_session_leaves_the_user_blocked(tester: Tester) -> None:
    tester.run(DETECTOR)
    spam(tester)
    spam(tester, at=GAP_MS + 1)  # a session of its own, while the first is open for what comes late
    write(tester, "bob", "carol", at=OPEN_MS)
    assert sessions(tester, "mallory").keys() == {(0, 0), (GAP_MS + 1, GAP_MS + 1)}
    assert reports(tester) == [("mallory", BLOCKED)]


def test_counts_of_two_sessions_are_added_up_when_a_late_message_makes_them_one(tester: Tester) -> None:
    tester.run(DETECTOR)
    half = SPAM_SENT_MIN // 2
    spam(tester, number=half)
    spam(tester, number=half - 1, at=GAP_MS + 2)
    assert reports(tester) == []
    write(tester, "mallory", "bob", at=2)
    assert sessions(tester, "mallory") == {(0, GAP_MS + 2): (SPAM_SENT_MIN, 0)}
    assert reports(tester) == [("mallory", BLOCKED)]


def test_a_message_that_comes_when_its_session_has_closed_counts_no_more(tester: Tester) -> None:
    tester.run(DETECTOR)
    spam(tester, number=SPAM_SENT_MIN - 1)
    write(tester, "bob", "carol", at=OPEN_MS - 1)
    write(tester, "bob", "carol", at=OPEN_MS)
    write(tester, "mallory", "bob")
    assert sessions(tester, "mallory") == {(0, 0): (SPAM_SENT_MIN - 1, 0)}
    assert reports(tester) == []


def test_of_a_backlog_in_whatever_order_only_spammers_stay_blocked(tester: Tester) -> None:
    tester.create(MESSAGES, partitions=4)
    load = messages(LoadOptions(keys=10, seed=3), 2, lambda: 5)
    tester.emit_many(MESSAGES, islice(load, 1000))
    tester.run(DETECTOR, BLOCKER)
    assert tester.table(BLOCKER) == {
        user: {"everybody": True, "by": []} for user in ("spammer-1", "spammer-2")
    }


def test_a_sender_who_is_answered_after_all_gets_through_again(tester: Tester) -> None:
    tester.run(DETECTOR, BLOCKER)
    for _ in range(SPAM_SENT_MIN):
        write(tester, "alice", "bob")
    assert tester.table(BLOCKER).keys() == {"alice"}
    for _ in range(SPAM_SENT_MIN // 5):
        write(tester, "bob", "alice")
    assert tester.table(BLOCKER) == {}


def test_a_user_who_is_answered_is_no_spammer_however_much_they_write(tester: Tester) -> None:
    tester.run(DETECTOR)
    for number in range(3 * SPAM_SENT_MIN):
        write(tester, "alice", "bob")
        if number % 3 == 0:
            write(tester, "bob", "alice")
    assert reports(tester) == []


def test_whom_an_operator_has_unblocked_stays_so_until_they_are_found_again(tester: Tester) -> None:
    tester.run(DETECTOR, BLOCKER)
    spam(tester)
    tester.emit(BLOCKS, "mallory", Block(by=None, blocked=False))
    spam(tester)
    assert tester.table(BLOCKER) == {}
    spam(tester, at=2 * OPEN_MS)
    assert tester.table(BLOCKER).keys() == {"mallory"}


def test_the_verdict_is_the_same_after_the_loss_of_a_disk(tester: Tester) -> None:
    tester.run(DETECTOR, BLOCKER)
    spam(tester, number=SPAM_SENT_MIN - 1)

    def lose_disks() -> None:
        tester.commit()
        for group in DETECTOR.groups:
            tester.stop(group)
            tester.start(group, disk=False)

    lose_disks()
    write(tester, "mallory", "bob")
    assert reports(tester) == [("mallory", BLOCKED)]
    lose_disks()
    spam(tester)
    write(tester, "bob", "carol", at=2 * OPEN_MS)
    assert reports(tester) == [("mallory", BLOCKED), ("mallory", TAKEN_BACK)]


@pytest.mark.parametrize("name", ROLES)
def test_each_role_is_a_group_of_its_name(name: str) -> None:
    assert GROUPS[name].name == name
