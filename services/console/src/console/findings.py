"""The present troubles: the findings of `streamtable doctor` about processes, as they report, and about brokers and groups."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from console.fleet import node_of
from console.history import StatusReport
from contracts.records import ProcessStatus
from streamtable_admin.findings import Finding, Level
from streamtable_admin.process_status import judge_processes
from streamtable_admin.process_trend import ProcessTrends

_PROCESS: Final = "process "
_BROKER: Final = "broker"
_NODES: Final = ("call ", "group ", "topic ")
"""The beginnings of subjects that are nodes of the graph."""
_DEAD: Final = {"silent", "failed"}


class Examiner:
    """Judges the processes at each poll by their present and earlier reports. One thread."""

    def __init__(self) -> None:
        self._trends = ProcessTrends()

    def recall(self, reports: Iterable[StatusReport]) -> Iterator[StatusReport]:
        """Yield earlier reports on, and learn from them."""
        for report in reports:
            # Their lags are in offsets, and say little.
            status = None if report.status is None else {**report.status, "inputs": []}
            self._trends.add(report.key, status)
            yield report

    def look(
        self,
        statuses: Mapping[str, ProcessStatus],
        instances: Iterable[Mapping[str, Any]],
        now_ms: int,
        examined: Iterable[Finding] = (),
    ) -> list[dict[str, Any]]:
        """Return the warnings and problems, the worst and longest first, with the node of the graph that they are about.

        Problems of brokers come first, because they are the cause of others. Warnings about them come last: most are
        about settings, and stay.

        Args:
            statuses: The statuses of the processes.
            instances: The processes to judge.
            now_ms: The time, in milliseconds since 1970.
            examined: The findings about brokers and groups.
        """
        listed = {each["key"]: each for each in instances}
        examined = list(examined)
        subjects = {each.subject for each in examined}
        live = {key: statuses[key] for key, each in listed.items() if each["state"] not in _DEAD}
        self._trends.keep(live)
        for key, status in live.items():
            self._trends.add(key, status)
        found = [
            *judge_processes({key: statuses[key] for key in listed}, now_ms),
            *self._trends.findings(now_ms),
            *self._trends.lag_findings(now_ms),
            # The check of groups knows the errors of calls too.
            *(each for each in self._trends.call_findings(now_ms) if each.subject not in subjects),
            *examined,
        ]
        wrong = [each for each in found if each.level is not Level.OK]
        wrong.sort(key=lambda each: _order(each, now_ms))
        return [_document(each, listed) for each in wrong]


def _order(finding: Finding, now_ms: int) -> tuple[bool, bool, int, str]:
    mild = finding.level is not Level.PROBLEM
    return mild, finding.subject.startswith(_BROKER) == mild, finding.since_ms or now_ms, finding.subject


def _document(finding: Finding, instances: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    process = instances.get(finding.subject.removeprefix(_PROCESS), {})
    node = finding.subject if finding.subject.startswith(_NODES) else ""
    return {
        "level": str(finding.level),
        "subject": finding.subject,
        "node": node_of(process) if process else node,
        "instance": process.get("instance", ""),
        "fact": finding.fact,
        "advice": finding.advice,
        "since": finding.since_ms,
    }
