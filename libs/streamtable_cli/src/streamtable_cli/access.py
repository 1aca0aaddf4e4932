"""What `streamtable doctor` says of who may do what: how we come in ourselves, and the rights of the declared users."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from streamtable.kafka.admin import BrokerAddress, KafkaAdmin
from streamtable.kafka.rights import Right
from streamtable_cli.declared import load
from streamtable_cli.findings import Finding, ok, problem, warning
from streamtable_cli.output import count
from streamtable_cli.reach import loopback
from streamtable_cli.rights import rights_of
from streamtable_cli.session import Session
from streamtable_cli.users import plan


def ourselves(session: Session, brokers: Iterable[BrokerAddress]) -> Iterator[Finding]:
    """As whom we come, and whether others can listen."""
    kafka = session.settings.kafka
    protocol = kafka.get("security.protocol", "plaintext").upper()
    user = kafka.get("sasl.username", "")
    come = f"we come as user {user!r} by {protocol}" if user else f"we come without a name by {protocol}"
    if not protocol.endswith("SSL") and not all(loopback(broker.host) for broker in brokers):
        yield warning(
            "access", f"{come}: whoever is on the way can read along", "see docs/operate/security.md"
        )
    else:
        yield ok("access", come)


def users(session: Session, admin: KafkaAdmin, file: Path) -> Iterator[Finding]:
    """The rights of the users that a file declares, compared with those that they have, where Kafka asks who comes."""
    declared = load(file)
    if not declared.users or "SASL" not in session.settings.kafka.get("security.protocol", "").upper():
        return
    found = plan(rights_of(declared), admin.rights(declared.users))
    advice = f"streamtable users apply --file {file}"
    for user, lacking in groupby(found.grant, key=lambda right: right.user):
        yield problem(f"user {user}", f"lacks {_texts(lacking)}", advice)
    for user, spare in groupby(found.revoke, key=lambda right: right.user):
        yield warning(f"user {user}", f"has more than it needs: {_texts(spare)}", advice)
    if found.same:
        yield ok("users", f"{count(len(found.same), 'right is', 'rights are')} as {file} declares")


def _texts(rights: Iterable[Right]) -> str:
    return ", ".join(str(right) for right in rights)
