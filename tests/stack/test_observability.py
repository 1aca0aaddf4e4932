"""Page of metrics, alerts, runbooks and dashboards say the same as the code."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.metrics import MetricWrapperBase
from tests.stack.programs import load

from servicekit.grpc.metrics import CallMetrics
from servicekit.http.metrics import HttpMetrics
from servicekit.tables.top_list import TopMetrics
from streamtable.observe import Metrics, registered
from streamtable_calls.metrics import CallInstruments
from streamtable_capture.repeats import CaptureInstruments
from streamtable_query.metrics import QueryMetrics
from streamtable_spark.jobs.metrics import gauges

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "infra/prometheus"
GRAFANA = ROOT / "infra/grafana"
PAGE = (ROOT / "docs/operate/metrics.md").read_text()
RUNBOOKS = (ROOT / "docs/operate/runbooks.md").read_text()
ALERTS: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in (GRAFANA / "dashboards").glob("*.json")}
# Of Prometheus itself, node_exporter, the kubelet and kube-state-metrics.
OF_OTHERS = {
    "up",
    "node_filesystem_avail_bytes",
    "node_filesystem_size_bytes",
    "kubelet_volume_stats_available_bytes",
    "kubelet_volume_stats_capacity_bytes",
    "kube_cronjob_created",
    "kube_cronjob_status_active",
    "kube_cronjob_status_last_schedule_time",
    "kube_cronjob_status_last_successful_time",
}
# They end by themselves; or their network is not Prometheus's.
WITHOUT_METRICS = {"inventory-connector", "topics", "spark-maintain", "spark-rebuild", "spark-reconcile"} | {
    "chaos",
    "click-count-processor-chaos",
}
PROMTOOL = shutil.which("promtool")


def instruments() -> Iterator[Any]:
    registry = CollectorRegistry()
    for made in (
        Metrics.register(registry),
        HttpMetrics.register(registry),
        CallMetrics.register(registry),
        TopMetrics.register(registry),
        registered(CallInstruments, registry),
        registered(CaptureInstruments, registry),
        QueryMetrics.register(registry),
    ):
        yield from (each for each in vars(made).values() if isinstance(each, MetricWrapperBase))
    yield from gauges(registry).values()


def documented_name(instrument: Any) -> str:
    name: str = instrument._name
    return f"{name}_total" if isinstance(instrument, Counter) else name


def names_in(expression: str) -> set[str]:
    bare = re.sub(r'\{[^}]*}|"[^"]*"|\bby \([^)]*\)', "", expression)
    return set(re.findall(r"\b(?:streamtable|servicekit|http|grpc|node|kubelet|kube)_\w+|\bup\b", bare))


def known_names() -> set[str]:
    named = {documented_name(each) for each in instruments()}
    return named | {f"{name}_{part}" for name in named for part in ("bucket", "sum", "count")} | OF_OTHERS


def expressions() -> list[str]:
    return [
        target["expr"]
        for board in DASHBOARDS.values()
        for panel in board["panels"]
        for target in panel["targets"]
    ]


def test_the_page_lists_each_metric_of_the_code_with_its_kind_and_labels_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*)\|", PAGE, re.MULTILINE)
    listed = {name: (kind, tuple(re.findall(r"\w+", labels))) for name, kind, labels in rows}
    made = {documented_name(each): (type(each).__name__.lower(), each._labelnames) for each in instruments()}
    assert listed == made


def test_alerts_and_dashboards_ask_for_metrics_that_exist() -> None:
    asked = [rule["expr"] for rule in ALERTS] + expressions()
    assert len(asked) > 40
    for expression in asked:
        assert names_in(expression), expression
        assert names_in(expression) <= known_names(), expression


def test_each_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    sections = re.findall(r"^## (\w+)$", RUNBOOKS, re.MULTILINE)
    assert sections == [rule["alert"] for rule in ALERTS]
    for rule in ALERTS:
        assert rule["annotations"]["runbook"] == f"docs/operate/runbooks.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in {"page", "ticket"}


def test_the_dashboards_are_what_their_program_makes() -> None:
    program = load("infra/grafana/generate.py")
    assert {path.name for path in (GRAFANA / "dashboards").iterdir()} == {
        program.file_of(each).name for each in program.DASHBOARDS
    }
    for each in program.DASHBOARDS:
        assert program.file_of(each).read_text() == program.dashboard_json(each), "run 'make gen'"


@pytest.mark.parametrize("name", ["overview", "group", "view", "edge", "spark"])
def test_a_dashboard_can_be_provisioned(name: str) -> None:
    board = DASHBOARDS[name]
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    identifiers = [panel["id"] for panel in board["panels"]]
    assert len(set(identifiers)) == len(identifiers)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    variables = {variable["name"] for variable in board["templating"]["list"]}
    for panel in board["panels"]:
        assert panel["datasource"]["uid"] == source["uid"]
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= variables, target["expr"]


def test_prometheus_looks_for_every_service_of_the_compose_file() -> None:
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    looked_for = set(config["scrape_configs"][0]["dns_sd_configs"][0]["names"])
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    ours = {name for name, service in services.items() if service.get("pull_policy") == "never"}
    assert looked_for == ours - WITHOUT_METRICS


def promtool(*arguments: str, cwd: Path = PROMETHEUS) -> None:
    """Prometheus's own judgement, on machines that have it; elsewhere only the tests above judge."""
    if PROMTOOL is not None:
        done = subprocess.run([PROMTOOL, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_configuration_and_alerts() -> None:
    promtool("check", "config", "prometheus.yml")


def test_alerts_fire_when_they_should_and_not_before() -> None:
    promtool("test", "rules", "alerts.test.yml")


def test_prometheus_can_read_every_expression_of_the_dashboards(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": re.sub(r"\$__rate_interval", "5m", expression)}
        for number, expression in enumerate(expressions())
    ]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", "rules.yml", cwd=tmp_path)
