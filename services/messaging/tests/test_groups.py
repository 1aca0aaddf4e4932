"""The groups on the Tester: the engine's own code, without a broker."""

from itertools import count, islice

import pytest

from contracts.records import Block, Message, Translation
from messaging.domain import FEED_MESSAGES, SPAM_SENT_MIN
from messaging.groups import (
    BLOCKER,
    BLOCKS,
    COLLECTOR,
    DETECTOR,
    FILTER,
    GROUPS,
    MESSAGES,
    MESSAGES_FILTERED,
    TRANSLATIONS,
    TRANSLATOR,
)
from messaging.load import messages
from servicekit.process.load import LoadOptions
from streamtable_testing import Tester

_ids = count()


def message(sender: str, recipient: str, text: str = "hello", identity: str | None = None) -> Message:
    return Message(
        id=identity or f"id-{next(_ids)}", sender=sender, recipient=recipient, text=text, at=1_700_000_000_000
    )


def write(tester: Tester, sender: str, recipient: str, text: str = "hello") -> None:
    tester.emit(MESSAGES, sender, message(sender, recipient, text))


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
    for _ in range(3):
        write(tester, "alice", "bob")
    write(tester, "bob", "alice")
    write(tester, "bob", "bob")
    assert tester.table(DETECTOR) == {
        "alice": {"sent": 3, "received": 1, "spammer": False},
        "bob": {"sent": 1, "received": 3, "spammer": False},
    }


def test_a_spammer_is_reported_once_and_no_user_gets_their_messages_from_then_on(tester: Tester) -> None:
    tester.run(*GROUPS.values(), partitions=2)
    for number in range(SPAM_SENT_MIN + 10):
        write(tester, "mallory", f"user-{number}")
    reports = [(each.key, each.value) for each in tester.records(BLOCKS)]
    assert reports == [("mallory", {"by": None, "blocked": True})]
    assert len(tester.records(MESSAGES_FILTERED)) == SPAM_SENT_MIN
    write(tester, "alice", "bob")
    assert texts(tester, "bob") == [("alice", "hello")]


def test_of_a_backlog_in_whatever_order_only_spammers_stay_blocked(tester: Tester) -> None:
    tester.create(MESSAGES, partitions=4)
    load = messages(LoadOptions(keys=10, seed=3), 2, lambda: 5)
    tester.emit_many(MESSAGES, islice(load, 1000))
    tester.run(DETECTOR, BLOCKER)
    blocked = {"everybody": True, "by": []}
    assert tester.table(BLOCKER) == {"spammer-1": blocked, "spammer-2": blocked}


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
    assert tester.records(BLOCKS) == []


@pytest.mark.parametrize("name", ["filter", "collector", "blocker", "translator", "detector"])
def test_each_role_is_a_group_of_its_name(name: str) -> None:
    assert GROUPS[name].name == name
