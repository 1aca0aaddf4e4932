"""`make gen`: the dashboards of Grafana, `infra/grafana/dashboards/*.json`, from the short descriptions below.

Grafana's own format repeats a hundred constant settings for each panel. Standard library only.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "dashboards"
SOURCE = {"type": "prometheus", "uid": "prometheus"}
WIDTH, HEIGHT = 8, 7
PER_ROW = 24 // WIDTH
OPERATIONS = "/readyz|/livez|/metrics|none"


@dataclass(frozen=True)
class Panel:
    """A graph of one or more expressions over time.

    Attributes:
        title: The title of the panel.
        unit: The unit of the values, by Grafana's names.
        lines: The expressions, each with the legend of its lines.
        text: The description, shown on request.
    """

    title: str
    unit: str
    lines: Sequence[tuple[str, str]]
    text: str = ""


@dataclass(frozen=True)
class Dashboard:
    """A page of panels; `variables` are labels of a metric to choose by: name, query."""

    uid: str
    title: str
    variables: Sequence[tuple[str, str]]
    panels: Sequence[Panel]


def quantile(share: float, metric: str, labels: str, where: str = "") -> str:
    """Return the expression of a quantile of a histogram, by some labels."""
    return f"histogram_quantile({share}, sum by ({labels}, le) (rate({metric}_bucket{{{where}}}[$__rate_interval])))"


def rate(metric: str, labels: str, where: str = "") -> str:
    return f"sum by ({labels}) (rate({metric}{{{where}}}[$__rate_interval]))"


GROUP = 'group=~"$group"'
VIEW = 'service=~"$service"'
JOB = 'job_name=~"$job"'
DASHBOARDS = (
    Dashboard(
        "streamtable-overview", "Streamtable: overview", [],
        [
            Panel("Processes that answer", "short", [('sum by (service) (up{job="streamtable"})', "{{service}}")]),
            Panel("Lag", "short", [("sum by (group) (streamtable_lag_records)", "{{group}}")],
                  "Records between what is applied and the input's end."),
            Panel("Records in", "rps", [(rate("streamtable_records_in_total", "group"), "{{group}}")]),
            Panel("Commits, 99th percentile", "s",
                  [(quantile(0.99, "streamtable_commit_seconds", "group"), "{{group}}")]),
            Panel("Dead letters in an hour", "short",
                  [("sum by (group) (increase(streamtable_dead_letters_total[1h]))", "{{group}}")],
                  "Anything above zero is for a person: streamtable dead-letters list GROUP."),
            Panel("Age of views", "s",
                  [("max by (service, topic) (streamtable_view_age_seconds)", "{{service}} {{topic}}")]),
            Panel("Left to load", "short",
                  [("sum by (group, topic) (streamtable_recovery_remaining_records)", "{{group}} {{topic}}")]),
            Panel("Requests", "reqps",
                  [(rate("http_requests_total", "service", f'route!~"{OPERATIONS}"'), "{{service}}")]),
            Panel("Failures of our own", "reqps",
                  [(rate("http_requests_total", "service", f'status=~"5..", route!~"{OPERATIONS}"'),
                    "{{service}}")]),
        ],
    ),
    Dashboard(
        "streamtable-group", "Streamtable: group",
        [("group", "label_values(streamtable_commit_seconds_count, group)")],
        [
            Panel("Lag of each partition", "short",
                  [(f"max by (topic, partition) (streamtable_lag_records{{{GROUP}}})", "{{topic}}[{{partition}}]")]),
            Panel("Records in, by topic", "rps", [(rate("streamtable_records_in_total", "topic", GROUP), "{{topic}}")]),
            Panel("Records out, by topic", "rps",
                  [(rate("streamtable_records_out_total", "topic", GROUP), "{{topic}}")]),
            Panel("Commit", "s",
                  [(quantile(0.5, "streamtable_commit_seconds", "group", GROUP), "half"),
                   (quantile(0.99, "streamtable_commit_seconds", "group", GROUP), "99 in 100")]),
            Panel("Commits", "ops", [(rate("streamtable_commit_seconds_count", "instance", GROUP), "{{instance}}")]),
            Panel("Records in a batch", "short",
                  [(quantile(0.5, "streamtable_batch_records", "group", GROUP), "half")]),
            Panel("Transactions given up", "short",
                  [(f"sum by (instance) (increase(streamtable_aborts_total{{{GROUP}}}[5m]))", "{{instance}}")]),
            Panel("Rebalances", "short",
                  [(f"sum by (event) (increase(streamtable_rebalances_total{{{GROUP}}}[5m]))", "{{event}}")]),
            Panel("Dead letters", "short",
                  [(f"sum by (topic) (increase(streamtable_dead_letters_total{{{GROUP}}}[5m]))", "{{topic}}")]),
            Panel("Left to load", "short",
                  [(f"max by (topic, partition) (streamtable_recovery_remaining_records{{{GROUP}}})",
                    "{{topic}}[{{partition}}]")]),
            Panel("Watermark behind the clock", "s",
                  [(f"time() - max by (partition) (streamtable_watermark_timestamp_seconds{{{GROUP}}})",
                    "{{partition}}")], "Only of groups that follow event time."),
            Panel("Warm copies: left to read", "short",
                  [(f"sum by (instance) (streamtable_standby_lag_records{{{GROUP}}})", "{{instance}}")]),
            Panel("State", "bytes", [(f"sum by (instance) (streamtable_store_bytes{{{GROUP}}})", "{{instance}}")],
                  "On disk and in memory tables."),
            Panel("Pending calls", "short",
                  [(f"sum by (call) (streamtable_calls_pending{{{GROUP}}})", "{{call}}")],
                  "Requests to APIs without a result: streamtable calls list GROUP."),
            Panel("Attempts of calls", "ops",
                  [(rate("streamtable_calls_attempts_total", "call, outcome", GROUP), "{{call}} {{outcome}}")]),
            Panel("Oldest pending call", "s",
                  [(f"max by (call) (streamtable_calls_oldest_seconds{{{GROUP}}})", "{{call}}")],
                  "By the event time of its record."),
            Panel("Duration of calls", "s",
                  [(quantile(0.5, "streamtable_calls_seconds", "call", GROUP), "{{call}}: half"),
                   (quantile(0.99, "streamtable_calls_seconds", "call", GROUP), "{{call}}: 99 in 100")]),
        ],
    ),
    Dashboard(
        "streamtable-view", "Streamtable: view",
        [("service", "label_values(streamtable_view_position, service)")],
        [
            Panel("Age", "s",
                  [(f"max by (instance, topic) (streamtable_view_age_seconds{{{VIEW}}})", "{{instance}} {{topic}}")],
                  "Since the copy was last equal to the table's end."),
            Panel("Age of each partition", "s",
                  [(f"max by (topic, partition) (streamtable_view_age_seconds{{{VIEW}}})",
                    "{{topic}}[{{partition}}]")]),
            Panel("Changes applied", "ops",
                  [(f"sum by (instance) (deriv(streamtable_view_position{{{VIEW}}}[1m]))", "{{instance}}")],
                  "Offsets a second: markers of transactions count."),
            Panel("Left to load", "short",
                  [(f"sum by (instance, topic) (streamtable_recovery_remaining_records{{{VIEW}}})",
                    "{{instance}} {{topic}}")]),
            Panel("State", "bytes", [(f"sum by (instance) (streamtable_store_bytes{{{VIEW}}})", "{{instance}}")]),
            Panel("gRPC calls, by code", "reqps", [(rate("grpc_server_handled_total", "grpc_code", VIEW), "{{grpc_code}}")]),
        ],
    ),
    Dashboard(
        "streamtable-edge", "Streamtable: edge",
        [("service", "label_values(http_requests_in_flight, service)")],
        [
            Panel("REST requests, by route", "reqps", [(rate("http_requests_total", "method, route", VIEW), "{{method}} {{route}}")]),
            Panel("REST answers, by status", "reqps", [(rate("http_requests_total", "status", VIEW), "{{status}}")]),
            Panel("Time to the answer, 99th percentile", "s",
                  [(quantile(0.99, "http_request_seconds", "route", VIEW), "{{route}}")]),
            Panel("Requests under way", "short",
                  [(f"sum by (instance) (http_requests_in_flight{{{VIEW}}})", "{{instance}}")],
                  "Streams of events count as long as they are open."),
            Panel("Connections dropped", "ops",
                  [(rate("http_connections_dropped_total", "reason", VIEW), "{{reason}}")]),
            Panel("gRPC calls, by method", "reqps",
                  [(rate("grpc_server_handled_total", "grpc_method", VIEW), "{{grpc_method}}")]),
            Panel("gRPC, 99th percentile", "s",
                  [(quantile(0.99, "grpc_server_handling_seconds", "grpc_method", VIEW), "{{grpc_method}}")]),
            Panel("gRPC failures, by code", "reqps",
                  [(rate("grpc_server_handled_total", "grpc_code", f'grpc_code!="OK", {VIEW}'), "{{grpc_code}}")]),
            Panel("gRPC streams open", "short",
                  [(f"sum by (grpc_method) (grpc_server_open_streams{{{VIEW}}})", "{{grpc_method}}")]),
        ],
    ),
    Dashboard(
        "streamtable-spark", "Streamtable: Spark jobs",
        [("job", "label_values(streamtable_job_started_seconds, job_name)")],
        [
            Panel("Since the last run that went well", "s",
                  [(f"time() - max by (job_name, group) (streamtable_job_success_seconds{{{JOB}}} > 0)",
                    "{{job_name}} {{group}}")]),
            Panel("The last run failed", "short",
                  [(f"max by (job_name, group) (streamtable_job_failed{{{JOB}}})", "{{job_name}} {{group}}")]),
            Panel("Keys that differ", "short",
                  [(f"max by (job_name, group) (streamtable_job_differences{{{JOB}}})", "{{job_name}} {{group}}")],
                  "Of the last audit; anything above zero is for a person."),
            Panel("Under way", "short",
                  [(f"max by (job_name, group) (streamtable_job_running{{{JOB}}})", "{{job_name}} {{group}}")]),
            Panel("Done of the latest run", "percentunit",
                  [(f"max by (job_name, group) (streamtable_job_done_ratio{{{JOB}}})", "{{job_name}} {{group}}")]),
            Panel("Length of the latest run", "s",
                  [(f"max by (job_name, group) (streamtable_job_run_seconds{{{JOB}}})", "{{job_name}} {{group}}")]),
            Panel("Records of the latest run", "short",
                  [(f"max by (job_name, group) (streamtable_job_records{{{JOB}}})", "{{job_name}} {{group}}")]),
        ],
    ),
)  # fmt: skip


def panel_json(number: int, panel: Panel) -> dict[str, Any]:
    """Return the panel as Grafana stores it; `number` gives its position."""
    column, row = number % PER_ROW, number // PER_ROW
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 8, "showPoints": "never"}},
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": "ABCDEF"[at], "datasource": SOURCE, "expr": expression, "legendFormat": name}
            for at, (expression, name) in enumerate(panel.lines)
        ],
    }


def variable_json(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard_json(dashboard: Dashboard) -> str:
    document = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["streamtable"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "links": [
            {"type": "dashboards", "tags": ["streamtable"], "title": "Streamtable", "asDropdown": False}
        ],
        "templating": {"list": [variable_json(*each) for each in dashboard.variables]},
        "panels": [panel_json(number, panel) for number, panel in enumerate(dashboard.panels)],
    }
    return json.dumps(document, indent=1) + "\n"


def file_of(dashboard: Dashboard) -> Path:
    return FOLDER / f"{dashboard.uid.removeprefix('streamtable-')}.json"


if __name__ == "__main__":
    for each in DASHBOARDS:
        file_of(each).write_text(dashboard_json(each))
