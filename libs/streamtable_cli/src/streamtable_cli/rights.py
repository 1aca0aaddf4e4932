"""The least rights with which each declared user can do its work. Pure: from what is declared to rights.

Kafka lets whoever may read or write a thing also look at it, so DESCRIBE is named only where it is all that is needed.
"""

from collections.abc import Iterable, Iterator

from streamtable.errors import ConfigurationError
from streamtable.kafka.rights import Right
from streamtable_cli.declared import Declared, DeclaredGroup, DeclaredUser

EVERYTHING = "*"
_SETTINGS = "DESCRIBE_CONFIGS"  # whoever uses a topic checks first how it is set
# Who reads tables joins no group, but the client asks for one, by a name of ours, and without end where that is refused.
_NO_GROUP = ("DESCRIBE", True)


def rights_of(declared: Declared) -> set[Right]:
    """What all declared users need, and no more.

    Raises:
        ConfigurationError: a user runs a group, or reads or writes a topic, that is not declared.
    """
    topics = declared.descriptions()
    found = set[Right]()
    for name, user in declared.users.items():
        _check(name, "runs group", user.runs, declared.groups)
        _check(name, "follows group", user.follows, declared.groups)
        _check(name, "writes", user.writes, topics)
        _check(name, "reads", [each for each in user.reads if each != EVERYTHING], topics)
        for group in user.runs:
            used = (*declared.groups[group].outputs, *declared.groups[group].lookups)
            _check(name, f"runs group {group!r}, which uses", used, topics)
        found |= set(_rights(name, user, declared))
    return found


def _rights(name: str, user: DeclaredUser, declared: Declared) -> Iterator[Right]:
    for group in user.runs:
        yield from _running(name, group, declared.groups[group])
    for topic in user.writes:
        yield from _on(name, topic, "WRITE")
    for topic in user.reads:
        yield from _on(name, topic, "READ")
    if EVERYTHING in user.reads:
        yield Right(name, "group", EVERYTHING, "DESCRIBE")
    elif user.reads:
        yield Right(name, "group", "views-", *_NO_GROUP)
    for group in user.follows:
        yield Right(name, "group", group, "DESCRIBE")
        for topic in declared.groups[group].inputs:
            yield Right(name, "topic", topic, "DESCRIBE")
    for group in user.rebuilds:
        yield Right(name, "group", group, "READ")
        yield Right(name, "transactional id", f"streamtable-rebuild-{group}-table-", "WRITE", prefix=True)
        yield from _on(name, f"{group}-table", "WRITE")
        # A consumer that sets the offset of a topic has to be allowed to read it.
        for topic in (f"{group}-table", f"{group}-retry"):
            yield from _on(name, topic, "READ")
    if user.replays:
        for group in declared.groups:
            yield Right(name, "transactional id", f"{group}.", "WRITE", prefix=True)
            for topic in (f"{group}-retry", f"{group}-dead-letters"):
                yield from _on(name, topic, "WRITE")


def _running(user: str, name: str, group: DeclaredGroup) -> Iterator[Right]:
    """Of a processor: its group, its transactions, and each topic as it is used."""
    yield Right(user, "group", name, "READ")
    yield Right(user, "transactional id", f"{name}-", "WRITE", prefix=True)
    yield Right(user, "group", f"{name}-", *_NO_GROUP)
    own = {topic.name.removeprefix(name) for topic in group.implied(name, 1, 1)}
    read = [*group.reads, *group.lookups, *(name + each for each in own - {"-dead-letters"})]
    written = [*group.outputs, *(name + each for each in own - {"-retry", "-visits"})]
    for topic in read:
        yield from _on(user, topic, "READ")
    for topic in written:
        yield from _on(user, topic, "WRITE")


def _on(user: str, topic: str, operation: str) -> Iterator[Right]:
    yield Right(user, "topic", topic, operation)
    yield Right(user, "topic", topic, _SETTINGS)


def _check(user: str, does: str, names: Iterable[str], known: Iterable[str]) -> None:
    if unknown := sorted(set(names) - set(known)):
        raise ConfigurationError(f"user {user!r} {does} {', '.join(unknown)}, which is not declared")
