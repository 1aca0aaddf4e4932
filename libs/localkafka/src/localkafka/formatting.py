"""Formatting of an empty data folder, like Kafka's storage tool.

The tool takes a second of CPU time, so it runs once per machine and its output is cached.
"""

import base64
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from localkafka.cache import cache_folder, cached
from localkafka.errors import BrokerFailed
from localkafka.security import Security

CHECKPOINT = "bootstrap.checkpoint"
"""The initial feature versions and users of a cluster; the same for all clusters without users."""


def format_folder(
    tool: Sequence[str],
    settings: Path,
    logs: Path,
    of_cluster: str,
    node_id: int,
    version: str,
    security: Security | None = None,
) -> None:
    """Format a broker's data folder.

    Args:
        tool: The command of Kafka's storage tool. It runs only if there are initial users, or nothing is cached yet.
        settings: The broker's `server.properties`.
        logs: The folder of `log.dirs` in these settings.
        of_cluster: The cluster id.
        node_id: The broker's node id.
        version: The version of Kafka, which decides the initial feature versions.
        security: The security settings with the initial users, or None.

    Raises:
        BrokerFailed: The tool failed; the message has its output.
    """
    kept = f"kafka-{version}-formatted"
    if security is None and (cache_folder() / kept / CHECKPOINT).exists():
        logs.mkdir(parents=True, exist_ok=True)
        shutil.copy(cache_folder() / kept / CHECKPOINT, logs / CHECKPOINT)
        # Written last: a folder with this file counts as formatted.
        (logs / "meta.properties").write_text(
            f"version=1\ncluster.id={of_cluster}\nnode.id={node_id}\ndirectory.id={kafka_id(uuid.uuid4())}\n"
        )
        return
    users = security.formatting() if security else []
    done = subprocess.run(  # noqa: S603 - Java with our own arguments
        [*tool, "format", "-t", of_cluster, "-c", str(settings), *users],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BrokerFailed(
            f"the broker's data folder could not be formatted:\n{(done.stdout + done.stderr)[-2000:]}"
        )
    if security is None:
        cached(kept, lambda folder: _keep(logs / CHECKPOINT, folder))


def _keep(checkpoint: Path, folder: Path) -> None:
    shutil.copy(checkpoint, folder / CHECKPOINT)


def kafka_id(number: uuid.UUID) -> str:
    """Return an id in Kafka's form: 16 bytes in base64.

    The first two bits are 0, so that it never begins with a minus sign, which Kafka's tool would parse as an option.
    """
    return base64.urlsafe_b64encode(bytes([number.bytes[0] & 0x3F]) + number.bytes[1:]).decode().rstrip("=")
