"""`make images`: builds the images of the services and of the command line, and prints their sizes.

That of Spark's jobs, which is ten times as large, is built if the profile `spark` or its name is given.

Standard library only. Packages are fetched through the index that pip uses on this machine: its settings are passed to
the build as secrets, which stay out of the images and of the build's cache. With --sbom it writes the contents of each
image to dist/<image>.cdx.json.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from infra.scenarios.manifest import load_all

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = ROOT / "infra" / "docker" / "Dockerfile"
SBOM = ROOT / "infra" / "docker" / "sbom.py"
SPARK_JARS = ROOT / "infra" / "spark_jars.py"
JARS = ROOT / "build" / "spark-jars"
REGISTRY = os.environ.get("STREAMTABLE_REGISTRY", "streamtable")
VERSION = os.environ.get("STREAMTABLE_VERSION", "dev")
BASE = os.environ.get("STREAMTABLE_BASE", "python:3.11.15-slim-bookworm")
JAVA = os.environ.get("STREAMTABLE_JAVA", "openjdk-17-jre-headless")
# The package indexes and the trusted hosts; folders of this machine mean nothing in a container.
PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")
AUTHORITIES = "/run/authorities.pem"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


@dataclass(frozen=True)
class Image:
    """The parts of one image: a distribution, its command, and the lock of its dependencies.

    Attributes:
        name: The name of the image.
        kind: The base stage of the image; see the Dockerfile.
        profile: The profile of the compose file, if only that needs the image.
    """

    name: str
    command: str
    lock: str
    kind: str = "service"
    profile: str = ""

    @property
    def package(self) -> str:
        """The name of the distribution."""
        return f"streamtable-{self.name.removeprefix('streamtable-')}"

    @property
    def tag(self) -> str:
        return f"{REGISTRY}/{self.name}:{VERSION}"


IMAGES = (
    *(Image(each.name, each.command, each.lock) for each in load_all(ROOT)),
    Image("streamtable-cli", "streamtable", "cli"),
    Image("streamtable-spark", "streamtable-spark", "spark", kind="spark", profile="spark"),
)


def pip_settings() -> Mapping[str, str]:
    """Return pip's settings from its files and variables; the latter win."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    found: dict[str, str] = {}
    for line in sorted(listed.stdout.splitlines(), key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        found[name.rpartition(".")[2]] = str(ast.literal_eval(value))
    return found


def secrets(settings: Mapping[str, str], folder: Path) -> list[str]:
    """Write pip's settings as build secrets into a folder. Returns the arguments of `docker build`."""
    lines = [
        f"{name} = {value.replace(chr(10), f'{chr(10)}    ')}"
        for name, value in settings.items()
        if name in PIP_SETTINGS
    ]
    arguments = []
    if authorities := settings.get("cert"):
        lines.append(f"cert = {AUTHORITIES}")
        arguments += ["--secret", f"id=authorities,src={authorities}"]
    file = folder / "pip.conf"
    file.write_text("\n".join(["[global]", *lines, ""]))
    return [*arguments, "--secret", f"id=pip,src={file}"]


def command(image: Image, lent: Sequence[str]) -> list[str]:
    """Return the command that builds an image; `lent` are the secrets. Docker passes proxies as build arguments by itself."""
    made_of = {
        "BASE": BASE,
        "LOCK": image.lock,
        "PACKAGE": image.package,
        "COMMAND": image.command,
        "KIND": image.kind,
        "VERSION": VERSION,
    }
    if image.kind == "spark":
        made_of["JAVA"] = JAVA
    arguments = [f"{name}={value}" for name, value in made_of.items()]
    arguments += [name for name in PROXIES if name in os.environ]
    built = [part for argument in arguments for part in ("--build-arg", argument)]
    return ["docker", "build", "--file", str(DOCKERFILE), *built, *lent, "--tag", image.tag, str(ROOT)]


def build(image: Image, lent: Sequence[str]) -> None:
    """Build one image; the output of the build is shown only if it fails."""
    print(f"[images] {image.tag} ...", flush=True)
    if image.kind == "spark":
        lend_jars()
    done = subprocess.run(
        command(image, lent),
        env={**os.environ, "DOCKER_BUILDKIT": "1", "BUILDKIT_PROGRESS": "plain"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        stop(f"{image.tag} could not be built:\n{done.stdout[-6000:]}")
    size = ["docker", "image", "inspect", "--format", "{{.Size}}", image.tag]
    printed = subprocess.run(size, capture_output=True, text=True, check=True)
    print(f"[images] {image.tag}: {int(printed.stdout) / 1e6:.0f} MB, with its base", flush=True)


def lend_jars() -> None:
    """Copy Spark's jars into the build context: fetched once for this machine, and verified by their digests."""
    fetched = subprocess.run([sys.executable, SPARK_JARS], stdout=subprocess.PIPE, text=True, check=False)
    if fetched.returncode:
        stop("the jars of Spark's connectors could not be fetched")
    shutil.rmtree(JARS, ignore_errors=True)
    shutil.copytree(fetched.stdout.strip(), JARS)


def write_sbom(image: Image, folder: Path) -> None:
    """Write the bill of materials, which is generated inside the image."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{image.name}.cdx.json"
    run = ["docker", "run", "--rm", "--interactive", "--network", "none", "--entrypoint", "python"]
    with SBOM.open("rb") as program, file.open("wb") as out:
        subprocess.run(
            [*run, image.tag, "-I", "-", image.package, VERSION], stdin=program, stdout=out, check=True
        )
    print(f"[images] {file.relative_to(ROOT)}", flush=True)


def selected(names: Sequence[str], profiles: str) -> list[Image]:
    """Return the named images; without names all that the default profile of the compose file and these profiles need."""
    if names:
        return [each for each in IMAGES if each.name in names]
    return [each for each in IMAGES if not each.profile or {each.profile, "*"} & set(profiles.split(","))]


def main() -> None:
    """Build all images, or the named ones."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="IMAGE", help=", ".join(each.name for each in IMAGES))
    parser.add_argument("--sbom", action="store_true", help="list what is in images that are built")
    given = parser.parse_args()
    chosen = selected(given.names, os.environ.get("COMPOSE_PROFILES", ""))
    if unknown := set(given.names) - {each.name for each in IMAGES}:
        stop(f"there is no image {', '.join(sorted(unknown))}")
    if shutil.which("docker") is None:
        stop("images need Docker; everything else runs without it")
    if given.sbom:
        for image in chosen:
            write_sbom(image, ROOT / "dist")
        return
    with tempfile.TemporaryDirectory() as folder:
        lent = secrets(pip_settings(), Path(folder))
        for image in chosen:
            build(image, lent)


def stop(message: str) -> NoReturn:
    """Exit with this message."""
    sys.exit(f"[images] {message}")


if __name__ == "__main__":
    main()
