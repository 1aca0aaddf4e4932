"""ACLs: the least that each declared user needs for its work, compared with those that the cluster has.

READ and WRITE imply DESCRIBE, so DESCRIBE is listed only where it is all that is needed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from streamtable.errors import ConfigurationError
from streamtable_admin.cluster import Cluster
from streamtable_admin.declared import Declared, DeclaredGroup, DeclaredUser
from streamtable_admin.rights import CLUSTER, Acl

__all__ = ["Acl", "AclPlan", "plan_acls", "plan_declared_acls", "required_acls"]

EVERYTHING = "*"
_SETTINGS = "DESCRIBE_CONFIGS"  # every client checks how its topics are configured before it uses them
# A reader of tables joins no group, but the client asks for a coordinator of one, and repeats that without end if refused.
_NO_GROUP = ("DESCRIBE", True)
# A group that is rebuilt and not declared: the names of its states are not known.
_UNDECLARED = DeclaredGroup(inputs=["-"], once=True)


@dataclass(frozen=True, slots=True)
class AclPlan:
    """The ACLs of the declared users: those to grant, those to revoke, and those that are as declared."""

    grant: tuple[Acl, ...]
    revoke: tuple[Acl, ...]
    same: tuple[Acl, ...]


def plan_acls(required: set[Acl], found: set[Acl]) -> AclPlan:
    """Compare the ACLs that users need with those that they have."""
    parts = (required - found, found - required, required & found)
    return AclPlan(*(tuple(sorted(part)) for part in parts))


def plan_declared_acls(cluster: Cluster, declared: Declared) -> AclPlan:
    """Compare the ACLs of the declared users with the cluster's ACLs. Raises as `required_acls` does."""
    return plan_acls(required_acls(declared), cluster.admin.rights(declared.users))


def required_acls(declared: Declared) -> set[Acl]:
    """Return the ACLs that the declared users need, and no others.

    Raises:
        ConfigurationError: A user runs a group, or reads or writes a topic, that is not declared.
    """
    topics = declared.descriptions()
    found = set[Acl]()
    for name, user in declared.users.items():
        _check(name, "runs group", user.runs, declared.groups)
        _check(name, "follows group", user.follows, declared.groups)
        _check(name, "writes", user.writes, topics)
        _check(name, "reads", [each for each in user.reads if each != EVERYTHING], topics)
        for group in user.runs:
            used = (*declared.groups[group].outputs, *declared.groups[group].lookups)
            _check(name, f"runs group {group!r}, which uses", used, topics)
        found |= set(_acls(name, user, declared))
    return found


def _acls(name: str, user: DeclaredUser, declared: Declared) -> Iterator[Acl]:
    for group in user.runs:
        yield from _running(name, group, declared.groups[group])
    for topic in user.writes:
        yield from _on(name, topic, "WRITE")
    for topic in user.reads:
        yield from _on(name, topic, "READ")
    if EVERYTHING in user.reads:
        yield Acl(name, "group", EVERYTHING, "DESCRIBE")
        yield Acl(name, "cluster", CLUSTER, _SETTINGS)  # it checks the brokers, as `streamtable doctor` does
    elif user.reads:
        yield Acl(name, "group", "views-", *_NO_GROUP)
    for group in user.follows:
        yield Acl(name, "group", group, "DESCRIBE")
        # A broker describes the members of a group only to those who may describe all topics that these read.
        for topic in (*declared.groups[group].reads, *declared.groups[group].inner(group)):
            yield Acl(name, "topic", topic, "DESCRIBE")
    for group in user.rebuilds:
        yield Acl(name, "group", group, "READ")
        made = declared.groups.get(group, _UNDECLARED)
        for topic in {each.name for each in made.implied(group, 1, 1)} - {f"{group}-dead-letters"}:
            yield from _on(name, topic, "READ")  # who commits an offset of a topic needs it, too
            if topic not in made.inner(group):
                yield Acl(name, "transactional id", f"streamtable-rebuild-{topic}-", "WRITE", prefix=True)
                yield from _on(name, topic, "WRITE")
    if user.replays:
        for group in declared.groups:
            yield Acl(name, "transactional id", f"{group}.", "WRITE", prefix=True)
            for topic in (f"{group}-retry", f"{group}-dead-letters"):
                yield from _on(name, topic, "WRITE")


def _running(user: str, name: str, group: DeclaredGroup) -> Iterator[Acl]:
    """Yield the ACLs of a processor: for its group, its transactions, and each topic that it uses."""
    yield Acl(user, "group", name, "READ")
    yield Acl(user, "transactional id", f"{name}-", "WRITE", prefix=True)
    yield Acl(user, "group", f"{name}-", *_NO_GROUP)
    own = {topic.name.removeprefix(name) for topic in group.implied(name, 1, 1)}
    read = [*group.reads, *group.lookups, *(name + each for each in own - {"-dead-letters"})]
    written = [*group.outputs, *(name + each for each in own - {"-retry", "-visits"})]
    for topic in read:
        yield from _on(user, topic, "READ")
    for topic in written:
        yield from _on(user, topic, "WRITE")
    for topic in group.purges:
        yield from _on(user, topic, "DELETE")  # Kafka's right to delete records


def _on(user: str, topic: str, operation: str) -> Iterator[Acl]:
    yield Acl(user, "topic", topic, operation)
    yield Acl(user, "topic", topic, _SETTINGS)


def _check(user: str, does: str, names: Iterable[str], known: Iterable[str]) -> None:
    if unknown := sorted(set(names) - set(known)):
        raise ConfigurationError(f"user {user!r} {does} {', '.join(unknown)}, which is not declared")
