"""The images' recipe and locks, without building anything."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.stack.programs import load

images, sbom = load("infra/images.py"), load("infra/docker/sbom.py")
ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "infra/docker"
MEMBERS = {
    tomllib.loads(path.read_text())["project"]["name"]: tomllib.loads(path.read_text())["project"]
    for pattern in ("libs/*", "services/*", "spark")
    for path in ROOT.glob(f"{pattern}/pyproject.toml")
}


def pins(lock: Path) -> dict[str, set[str]]:
    """The hashes of each `name==version ; marker` of a lock."""
    entries = re.split(r"\n(?=\S)", lock.read_text().strip())
    return {
        entry.split(" \\")[0].partition(" ;")[0].strip(): set(re.findall(r"sha256:\w{64}", entry))
        for entry in entries
    }


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return found[0].lower().replace("_", "-")


def needs_of(package: str) -> set[str]:
    """Third-party names that a package of the workspace and those below it ask for."""
    found: set[str] = set()
    for requirement in MEMBERS[package]["dependencies"]:
        name = name_of(requirement)
        found |= needs_of(name) if name in MEMBERS else {name}
        for extra in re.findall(r"[\w-]+", requirement.partition("[")[2].partition("]")[0]):
            extras = MEMBERS.get(name, {}).get("optional-dependencies", {})
            found |= {name_of(each) for each in extras.get(extra, [])}
    return found


@pytest.mark.parametrize("lock", sorted((DOCKER / "locks").iterdir()), ids=lambda path: path.name)
def test_a_lock_is_a_part_of_the_workspace_s_lock(lock: Path) -> None:
    whole, part = pins(ROOT / "requirements.lock"), pins(lock)
    assert part
    if lock.name == "spark.txt":  # what `make setup SPARK=1` installs over it
        own = {pin for pin in part if pin.partition("==")[0] in ("pyspark", "py4j")}
        part = {pin: hashes for pin, hashes in part.items() if pin not in own}
        assert len(own) == 2
        assert not own & whole.keys()
    for pin, hashes in part.items():
        assert hashes, pin
        assert whole.get(pin) == hashes, f"{pin}: run 'make lock'"


@pytest.mark.parametrize("image", images.IMAGES, ids=lambda image: image.package)
def test_an_image_s_lock_has_all_that_its_package_asks_for(image: Any) -> None:
    locked = {pin.partition("==")[0] for pin in pins(DOCKER / f"locks/{image.lock}.txt")}
    assert needs_of(image.package) - locked == set(), "run 'make lock'"
    assert image.command in MEMBERS[image.package]["scripts"]


def test_images_carry_no_tool_of_ours() -> None:
    for lock in ("services", "stores", "cli"):
        locked = {pin.partition("==")[0] for pin in pins(DOCKER / f"locks/{lock}.txt")}
        assert not locked & {"pytest", "mypy", "ruff", "hypothesis", "hatchling", "uv", "pyspark"}


def test_the_recipe_needs_no_newer_frontend_and_ends_as_a_number_without_rights() -> None:
    recipe = (DOCKER / "Dockerfile").read_text()
    assert "# syntax=" not in recipe
    assert "<<" not in recipe
    last = recipe.rpartition("\nFROM ")[2]
    assert "USER 10001:10001" in last
    assert "HEALTHCHECK" in last
    assert re.search(r"^ENTRYPOINT \[", last, re.MULTILINE)


def test_the_native_loops_of_an_image_are_compiled_by_the_pinned_compiler_of_a_release() -> None:
    recipe = (DOCKER / "Dockerfile").read_text()
    assert "COPY infra/docker/locks/tools.txt infra/native_wheels.txt /locks/" in recipe
    assert "!infra/native_wheels.txt" in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    assert 'CC="/tools/bin/python -m ziglang cc -target $(uname -m)-linux-gnu.2.17"' in recipe
    compilers = {pin for pin, hashes in pins(ROOT / "infra/native_wheels.txt").items() if hashes}
    assert [pin for pin in compilers if pin.startswith("ziglang==")]


def test_pip_s_settings_are_lent_as_a_file_and_folders_of_this_machine_are_not(tmp_path: Path) -> None:
    settings = {
        "index-url": "https://mirror.example/simple",
        "extra-index-url": "https://one.example/\nhttps://two.example/",
        "find-links": "/opt/wheels",
        "cert": "/etc/authorities.pem",
    }
    arguments = images.secrets(settings, tmp_path)
    assert arguments == [
        "--secret", "id=authorities,src=/etc/authorities.pem", "--secret", f"id=pip,src={tmp_path / 'pip.conf'}"
    ]  # fmt: skip
    assert (tmp_path / "pip.conf").read_text() == (
        "[global]\nindex-url = https://mirror.example/simple\n"
        "extra-index-url = https://one.example/\n    https://two.example/\n"
        "cert = /run/authorities.pem\n"
    )


def test_the_image_of_spark_is_built_where_its_profile_or_its_name_asks_for_it() -> None:
    large = "streamtable-spark"
    assert {each.name for each in images.IMAGES if each.kind == "spark"} == {large}
    for profiles, asked in (("", False), ("stores,spark", True), ("sparkle", False), ("*", True)):
        chosen = [each.name for each in images.selected([], profiles)]
        assert (large in chosen) == asked
        assert len(chosen) == len(images.IMAGES) - (not asked)
    assert [each.name for each in images.selected([large], "")] == [large]


def test_no_secret_is_a_build_argument() -> None:
    command = images.command(images.IMAGES[0], ["--secret", "id=pip,src=/tmp/pip.conf"])
    arguments = [command[at + 1] for at, part in enumerate(command) if part == "--build-arg"]
    assert not [argument for argument in arguments if "index" in argument.lower()]


def test_the_list_of_what_is_in_an_image_names_each_package_once() -> None:
    status = (
        "Package: libc6\nStatus: install ok installed\nVersion: 1:2.36-9+deb12u1\nDescription: x\n Version: 9\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n"
    )
    document = json.loads(json.dumps(sbom.document("click-count", "1.0", status)))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    purls = [component["purl"] for component in document["components"]]
    assert len(set(purls)) == len(purls) > 20
    assert [purl for purl in purls if "deb" in purl] == ["pkg:deb/debian/libc6@1%3A2.36-9%2Bdeb12u1"]
    assert [purl for purl in purls if purl.startswith("pkg:pypi/confluent-kafka@")]
