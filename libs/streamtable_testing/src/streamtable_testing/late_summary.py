"""The late records of all groups of a test, from their metrics."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from prometheus_client import CollectorRegistry

from streamtable.base.lateness import advice, text


def late_summary(registries: Iterable[CollectorRegistry]) -> str:
    """Return a line for each table of windows or of a join that had late records; empty if none was late."""
    records = Counter[str]()
    late: defaultdict[str, Counter[str]] = defaultdict(Counter)
    samples = (sample for each in registries for family in each.collect() for sample in family.samples)
    for sample in samples:
        if sample.name == "streamtable_windowed_records_total":
            records[sample.labels["topic"]] += int(sample.value)
        elif sample.name == "streamtable_late_records_total":
            late[sample.labels["topic"]][sample.labels["moved_by"]] += int(sample.value)
    return "\n".join(
        f"{text(movers.total(), records[topic], topic)}: {advice(movers.most_common(1)[0][0])}"
        for topic, movers in sorted(late.items())
    )
