"""Authentication and ACL checks of `streamtable doctor`: this command's own identity, and the declared users."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from streamtable_admin.acls import plan_declared_acls
from streamtable_admin.cluster import BrokerAddress, Cluster
from streamtable_admin.declared import load
from streamtable_admin.findings import Finding, ok, problem, warning
from streamtable_admin.reachability import loopback
from streamtable_admin.text import count


def own_authentication(cluster: Cluster, brokers: Iterable[BrokerAddress]) -> Iterator[Finding]:
    """Yield the user and protocol of this command, and whether the connection is encrypted."""
    kafka = cluster.kafka.options
    protocol = kafka.get("security.protocol", "plaintext").upper()
    user = kafka.get("sasl.username", "")
    who = f"as user {user!r}" if user else "by tokens" if cluster.kafka.token else ""
    fact = f"authenticated {who} over {protocol}" if who else f"not authenticated, over {protocol}"
    if not protocol.endswith("SSL") and not all(loopback(broker.host) for broker in brokers):
        yield warning("access", f"{fact}: the connection is not encrypted", "see docs/operate/security.md")
    else:
        yield ok("access", fact)


def users(cluster: Cluster, file: Path) -> Iterator[Finding]:
    """Yield the difference between the ACLs that declared users need and have, where Kafka has authentication."""
    declared = load(file)
    if not declared.users or "SASL" not in cluster.kafka.options.get("security.protocol", "").upper():
        return
    found = plan_declared_acls(cluster, declared)
    advice = f"streamtable users apply --file {file}"
    for user, missing in groupby(found.grant, key=lambda acl: acl.user):
        yield problem(f"user {user}", f"lacks {', '.join(map(str, missing))}", advice)
    for user, extra in groupby(found.revoke, key=lambda acl: acl.user):
        yield warning(f"user {user}", f"has more than it needs: {', '.join(map(str, extra))}", advice)
    if found.same:
        yield ok("users", f"{count(len(found.same), 'ACL is', 'ACLs are')} as {file} declares")
