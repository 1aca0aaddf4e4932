"""Manifests of scenarios: the files generated from them are current, and a mistake in one is named with its key."""

import re
import tomllib
from pathlib import Path

import pytest
from infra.scenarios.generate import outdated
from infra.scenarios.manifest import ManifestInvalidError, load_all
from infra.scenarios.text import MarkMissingError, entry, with_region

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = """
name = "example"
lock = "services"

[topics]
events = {}

[groups.example]
inputs = ["events"]

[programs.emitter]
port = 8090
writes = ["events"]

[programs.processor]
runs = ["example"]
"""


def checkout(folder: Path, **manifests: str) -> Path:
    """A folder that has services with these manifests only."""
    for name, text in manifests.items():
        (folder / "services" / name).mkdir(parents=True)
        (folder / "services" / name / "scenario.toml").write_text(text)
    return folder


def test_what_is_generated_is_current() -> None:
    assert outdated(ROOT).keys() == set(), "run 'make gen'"


def test_every_service_has_a_manifest_with_its_distribution_and_its_command() -> None:
    projects = {
        file.parent.name: tomllib.loads(file.read_text())["project"]
        for file in ROOT.glob("services/*/pyproject.toml")
    }
    scenarios = load_all(ROOT)
    assert {each.folder: each.distribution for each in scenarios} == {
        folder: project["name"] for folder, project in projects.items()
    }
    assert all(each.command in projects[each.folder]["scripts"] for each in scenarios)


def test_a_program_without_more_words_has_the_defaults_of_its_kind(tmp_path: Path) -> None:
    (scenario,) = load_all(checkout(tmp_path, example=MANIFEST))
    emitter, processor = scenario.programs
    assert (emitter.kind, emitter.command, emitter.service) == ("emitter", ("emitter",), "example-emitter")
    assert (emitter.port_variable, emitter.workload) == ("STACK_EXAMPLE_EMITTER_PORT", "example-emitter")
    assert (processor.groups, processor.profile, processor.single) == (["example"], "", False)


@pytest.mark.parametrize(
    ("now", "then", "key", "reason"),
    [
        ('"example"\nlock', '"Example"\nlock', "name", "words in lower case"),
        ('"services"', '"service"', "lock", "must be one of services, stores"),
        ("port = 8090", 'port = "8090"', "programs.emitter.port", "must be a whole number, and is '8090'"),
        ("port = 8090", "port = 80", "programs.emitter.port", "must be from 1024 to 65535"),
        ("port = 8090", "prot = 8090", "programs.emitter.prot", "is unknown; the keys are"),
        ("[programs.emitter]", "[programs.web]", "programs.web.kind", "must be one of emitter"),
        ('runs = ["example"]', "", "programs.processor.runs", "runs at least one group"),
        ('runs = ["example"]', 'runs = ["other"]', "programs.processor.runs", "has no group 'other'"),
        ("[programs.processor]", "[programs.processor]\nfollows = ['x']", "programs.processor.follows", "no manifest has the group 'x'"),
        ("[programs.processor]", "[groups.more]\ninputs = ['x']\n[programs.processor]", "groups.more", "no program runs"),
        ("events = {}", 'events = "result"', "topics.events", "must be a table or one of"),
        ('inputs = ["events"]', "inputs = []", "groups.example.inputs", "must be a list of topics"),
        ('inputs = ["events"]', "joins = []", "groups.example.inputs", "must be a list of topics"),
        ('inputs = ["events"]', 'inputs = "events"', "groups.example.inputs", "must be a list of topics"),
        ("[programs.processor]", "[programs]\nview = 1\n[programs.processor]", "programs.view", "must be a table"),
        ("port = 8090", "port = 8090\nsettings = { A = 1 }", "programs.emitter.settings", "must be a table of strings"),
        ("[programs.processor]", "[programs.view]\nport = 8090\n[programs.processor]", "port", "has 8090 already"),
        ("[programs.processor]", "[programs.processor]\nport = 8091", "programs.processor.port", "serves no API"),
        ("port = 8090", "port = 8090\nanswers = true", "programs.emitter.answers", "only a processor does"),
        ("[programs.processor]", "[programs.processor]\nasks = true", "programs.processor.asks", "only a query does"),
        ("[programs.processor]", "[programs.query]\nasks = true\n[programs.processor]", "programs.query.asks", "no program .* answers"),
        ("[programs.processor]", "[programs.processor]\nservice = 'example-emitter'", "service", "has .* already"),
        ("[topics]", "[topics", "(the file)", "is not valid TOML"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_file_and_key(
    tmp_path: Path, now: str, then: str, key: str, reason: str
) -> None:
    assert MANIFEST.count(now) == 1
    with pytest.raises(ManifestInvalidError, match=reason) as caught:
        load_all(checkout(tmp_path, example=MANIFEST.replace(now, then)))
    assert (caught.value.key, caught.value.file.name) == (key, "scenario.toml")


def test_two_scenarios_cannot_claim_one_port_or_topic(tmp_path: Path) -> None:
    other = MANIFEST.replace('"example"', '"other"').replace("groups.example", "groups.other")
    with pytest.raises(ManifestInvalidError, match="has 'events' already"):
        load_all(checkout(tmp_path, example=MANIFEST, other=other))
    with pytest.raises(ManifestInvalidError, match="has 8090 already"):
        load_all(checkout(tmp_path / "2", example=MANIFEST, other=other.replace("events", "facts")))


def test_a_setting_that_all_programs_share_in_kubernetes_has_one_value(tmp_path: Path) -> None:
    text = MANIFEST.replace("port = 8090", "settings = { A = '1' }").replace(
        "[programs.processor]", "[programs.processor]\nsettings = { A = '2' }"
    )
    with pytest.raises(ManifestInvalidError, match="is '2', and '1' for another program") as caught:
        load_all(checkout(tmp_path, example=text))
    assert caught.value.key == "programs.processor.settings.A"


def test_a_file_without_the_marks_of_its_region_is_not_written_over() -> None:
    text = "a:\n  # generated from services/*/scenario.toml: begin x\n  old:\n  # generated from services/*/scenario.toml: end x\nb:\n"
    assert with_region(text, "x", ["  new:"]) == text.replace("old", "new")
    for broken in (text.replace("end", "ent"), text * 2, ""):
        with pytest.raises(MarkMissingError, match="begin x"):
            with_region(broken, "x", [])


def test_a_mapping_stands_on_one_line_where_it_fits_and_a_text_that_yaml_would_read_otherwise_is_quoted() -> (
    None
):
    assert entry("a", {"b": ["c", "yes", "embedded:", "8", 8, True]}, 2) == [
        '  a: {b: [c, "yes", "embedded:", "8", 8, true]}'
    ]
    assert entry("a", {"b": ["c" * 60, "d" * 60]}, 0) == [
        "a:",
        "  b:",
        f"    - {'c' * 60}",
        f"    - {'d' * 60}",
    ]


def test_pyproject_names_services_only_where_they_are_generated() -> None:
    names = "|".join(re.escape(name) for each in load_all(ROOT) for name in (each.folder, each.distribution))
    text = re.sub(
        r"begin sources\n.*?end sources", "", (ROOT / "pyproject.toml").read_text(), flags=re.DOTALL
    )
    named = [line for line in text.splitlines() if re.search(rf"\"({names})\"", line)]
    assert len(named) > 10
    assert [line for line in named if not re.search(r", # services(: \w+)?$", line)] == []
