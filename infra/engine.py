"""Says why containers cannot be had on this machine; says nothing, and ends with 0, if they can. Standard library only.

Images take a Docker engine, its `compose` and `buildx`, and the public images that ours and the stack stand on: these
must be there, or a registry must give them.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PULL_SECONDS = 300


def needed() -> list[str]:
    """The public images of the default profile: what ours are built on, and the broker."""
    base = re.search(r"^ARG BASE=(\S+)", (ROOT / "infra/docker/Dockerfile").read_text(), re.MULTILINE)
    broker = re.search(r"STACK_KAFKA_IMAGE:-([^}]+)", (ROOT / "docker-compose.yml").read_text())
    return [found[1] for found in (base, broker) if found is not None]


def fails(command: Sequence[str], seconds: float = 30) -> str | None:
    """The last line that a command says when it fails; None if it does not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except FileNotFoundError:
        return f"there is no {command[0]}"
    except subprocess.TimeoutExpired:
        return f"no answer in {seconds:g} s"
    said = (done.stderr.strip() or done.stdout.strip() or "it says nothing").splitlines()
    return said[-1] if done.returncode else None


def why_not() -> str | None:
    """What is missing, in one line; None if nothing is."""
    checks = {
        "the Docker engine does not answer": ["docker", "info", "--format", "{{.ServerVersion}}"],
        "Docker has no compose": ["docker", "compose", "version"],
        "Docker has no buildx": ["docker", "buildx", "version"],
    }
    for what, command in checks.items():
        if why := fails(command):
            return f"{what}: {why}"
    return next((why for image in needed() if (why := no_image(image))), None)


def no_image(image: str) -> str | None:
    """Why an image cannot be had, in one line; None if it is here now."""
    absent = fails(["docker", "image", "inspect", image])
    if absent and (why := fails(["docker", "pull", "--quiet", image], PULL_SECONDS)):
        return f"the image {image} is not here and cannot be pulled: {why}"
    return None


if __name__ == "__main__":
    reason = why_not()
    if reason is not None:
        sys.exit(reason)
