"""Topics as `infra/topics.yaml` declares them, and what has to be done to get there."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic: as declared (`config` holds what is asked for), or as found (`config` holds everything)."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str] = field(default_factory=dict)
    topic_id: str = ""
