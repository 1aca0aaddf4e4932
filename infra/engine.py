"""Prints the reason why containers cannot be run on this machine; prints nothing and exits with 0 if they can. Standard library
only.

Images need a Docker engine, its `compose` and `buildx`, and the public base images: these must be present or available
from a registry.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PULL_SECONDS = 300


def needed() -> list[str]:
    """Return the public images of the default profile: the base images, and the broker."""
    base = re.search(r"^ARG BASE=(\S+)", (ROOT / "infra/docker/Dockerfile").read_text(), re.MULTILINE)
    broker = re.search(r"STACK_KAFKA_IMAGE:-([^}]+)", (ROOT / "docker-compose.yml").read_text())
    return [found[1] for found in (base, broker) if found is not None]


def fails(command: Sequence[str], seconds: float = 30) -> str | None:
    """Return the last line of a failed command's output; None if it succeeds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except FileNotFoundError:
        return f"there is no {command[0]}"
    except subprocess.TimeoutExpired:
        return f"no answer in {seconds:g} s"
    said = (done.stderr.strip() or done.stdout.strip() or "it says nothing").splitlines()
    return said[-1] if done.returncode else None


def why_not() -> str | None:
    """Return the missing part, in one line; None if nothing is missing."""
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
    """Pull an image unless it is present; return the reason if that fails, in one line, else None."""
    absent = fails(["docker", "image", "inspect", image])
    if absent and (why := fails(["docker", "pull", "--quiet", image], PULL_SECONDS)):
        return f"the image {image} is not here and cannot be pulled: {why}"
    return None


if __name__ == "__main__":
    reason = why_not()
    if reason is not None:
        sys.exit(reason)
