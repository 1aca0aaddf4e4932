"""Creates and deletes topics for tests, and waits until the broker's metadata has the change.

The controller answers when the change is committed; brokers apply it a moment later, on a busy machine seconds later.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata

from localkafka.errors import BrokerNotReady
from localkafka.waiting import Deadline

_ANSWER_SECONDS: Final = 60  # on a busy machine
_ASK_SECONDS: Final = 0.5


def create_topics(admin: AdminClient, topics: Iterable[NewTopic]) -> None:
    """Create topics and wait until the broker knows a leader for each partition.

    Raises:
        KafkaException: The broker refuses, for example because one of them exists.
        BrokerNotReady: It took too long.
    """
    new = list(topics)
    deadline, left = Deadline(_ANSWER_SECONDS), new
    while left:
        answers = admin.create_topics(left)
        left = [topic for topic in left if not _created(answers[topic.topic], deadline)]
    names = [topic.topic for topic in new]
    _wait(admin, lambda known: all(name in known and _has_leaders(known[name]) for name in names))


def delete_topics(admin: AdminClient, names: Collection[str]) -> None:
    """Delete topics and wait until the broker knows none of them. Raises like `create_topics`."""
    if names:
        for deleted in admin.delete_topics(list(names)).values():
            deleted.result(_ANSWER_SECONDS)
        _wait(admin, lambda known: known.keys().isdisjoint(names))


def known_topics(admin: AdminClient) -> Mapping[str, TopicMetadata]:
    """Return the topics that the broker knows."""
    return admin.list_topics(timeout=_ANSWER_SECONDS).topics


def _created(answer: Future[None], deadline: Deadline) -> bool:
    """Wait until a topic is created. Returns False if the broker is fenced, as it may be after a stall."""
    while True:
        try:
            answer.result(_ASK_SECONDS)
        except TimeoutError:
            if deadline.passed():
                raise
        except KafkaException as error:
            if "fenced" not in str(error) or deadline.passed():
                raise
            time.sleep(_ASK_SECONDS)
            return False
        else:
            return True


def _has_leaders(topic: TopicMetadata) -> bool:
    return all(partition.leader >= 0 for partition in topic.partitions.values())


def _wait(admin: AdminClient, done: Callable[[Mapping[str, TopicMetadata]], bool]) -> None:
    deadline = Deadline(_ANSWER_SECONDS)
    while not done(known_topics(admin)):
        if deadline.passed():
            raise BrokerNotReady(f"the broker has not applied a change of its topics in {_ANSWER_SECONDS} s")
        time.sleep(0.02)
