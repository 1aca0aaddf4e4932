"""Administration of a Kafka cluster: what `Kafka.admin` returns, and the types of its questions and answers.

`streamtable_admin` builds on it what operators do: plans of topics and ACLs, offsets, bounded reads, dead letters.
"""

from streamtable.kafka.acls import Acl
from streamtable.kafka.admin import BrokerAddress, GroupDescription, GroupMember, KafkaAdmin

__all__ = ["Acl", "BrokerAddress", "GroupDescription", "GroupMember", "KafkaAdmin"]
