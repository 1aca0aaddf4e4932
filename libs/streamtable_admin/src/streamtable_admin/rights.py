"""ACLs and SCRAM passwords of users, in Kafka."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from streamtable.kafka import KafkaAdmin

SCRAM_ITERATIONS = 8_192
CLUSTER = "kafka-cluster"
"""The name of a cluster as a resource."""
_PREFIX = "User:"
_ANY_HOST = "*"
_KIND: Mapping[str, ResourceType] = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,  # the client's name of it
}
_RESOURCE = {kind: name for name, kind in _KIND.items()}


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """An operation that a user may do, from any host.

    Attributes:
        user: The name of the user.
        resource: The kind of resource.
        name: The name of the resource, or its prefix; "*" for all.
        operation: Kafka's word.
        prefix: The name is a beginning.
    """

    user: str
    resource: str
    name: str
    operation: str
    prefix: bool = False

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} {self.name}{'*' if self.prefix else ''}"


class UserAdmin(KafkaAdmin):
    """A cluster with the ACLs and passwords of its users. All methods raise `RetryLater` when there is no answer, and `AuthorizationError`."""

    def rights(self, users: Iterable[str]) -> set[Acl]:
        """Return the allowed operations of these users, by name, from any host. Other rules are ignored."""
        requested = set(users)
        listed = self._answer(self._admin.describe_acls(_every(), request_timeout=self._timeout))
        found = {
            _right(each)
            for each in listed
            if each.restype in _RESOURCE and each.host == _ANY_HOST and each.principal.startswith(_PREFIX)
        }
        return {right for right in found if right.user in requested}

    def grant(self, rights: Iterable[Acl]) -> None:
        """Add these ACLs; existing ones stay as they are."""
        asked = [AclBinding(*_of(each)) for each in rights]
        if asked:
            for binding, future in self._admin.create_acls(asked, request_timeout=self._timeout).items():
                self._change(future, f"granting {binding.name!r}", "ALTER")

    def revoke(self, rights: Iterable[Acl]) -> None:
        """Remove these ACLs; missing ones are no error."""
        asked = [AclBindingFilter(*_of(each)) for each in rights]
        if asked:
            for each, future in self._admin.delete_acls(asked, request_timeout=self._timeout).items():
                self._change(future, f"revoking {each.name!r}", "ALTER")

    def set_passwords(self, passwords: Mapping[str, bytes]) -> None:
        """Set the SCRAM-SHA-512 passwords of these users. Open connections stay open.

        Raises:
            ConfigurationError: The broker refuses one.
        """
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, SCRAM_ITERATIONS)
        asked: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, credential, text) for user, text in passwords.items()
        ]
        if not asked:
            return
        answers = self._admin.alter_user_scram_credentials(asked, request_timeout=self._timeout)
        for user, future in answers.items():
            self._change(future, f"the password of user {user!r}", "ALTER")


def _of(
    right: Acl,
) -> tuple[ResourceType, str, ResourcePatternType, str, str, AclOperation, AclPermissionType]:
    return (
        _KIND[right.resource],
        CLUSTER if right.resource == "cluster" else right.name,
        ResourcePatternType.PREFIXED if right.prefix else ResourcePatternType.LITERAL,
        f"{_PREFIX}{right.user}",
        _ANY_HOST,
        AclOperation[right.operation],
        AclPermissionType.ALLOW,
    )


def _every() -> AclBindingFilter:
    any_text: Any = None  # the client's types know of names only
    return AclBindingFilter(
        ResourceType.ANY,
        any_text,
        ResourcePatternType.ANY,
        any_text,
        any_text,
        AclOperation.ANY,
        AclPermissionType.ALLOW,
    )


def _right(found: Any) -> Acl:
    user, resource = found.principal.removeprefix(_PREFIX), _RESOURCE[found.restype]
    prefix = found.resource_pattern_type is ResourcePatternType.PREFIXED
    return Acl(user, resource, found.name, found.operation.name, prefix)
