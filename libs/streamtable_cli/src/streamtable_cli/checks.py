"""Checks of `streamtable doctor` that need a file, a graph, or this machine's disk. Each yields findings and changes nothing."""

import os
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from streamtable import Group
from streamtable.errors import ConfigurationError
from streamtable.graph.topic_check import check_topics
from streamtable.graph.topic_owners import refuse_topics_of_others
from streamtable.graph.topic_settings import topic_warnings
from streamtable_admin.cluster import Cluster
from streamtable_admin.declared import load
from streamtable_admin.findings import Finding, ok, problem, warning
from streamtable_admin.text import count
from streamtable_admin.topic_plan import plan_topics

DISK_PROBLEM_BYTES, DISK_WARNING_BYTES = 200 << 20, 2 << 30


def topics(cluster: Cluster, file: Path) -> Iterator[Finding]:
    """Compare the topics declared in a file with the existing ones. Raises `ConfigurationError` for the file."""
    declared = load(file).descriptions()
    found = plan_topics(declared, cluster.admin.describe(declared))
    advice = f"streamtable topics apply --file {file}"
    for topic in found.create:
        yield problem(f"topic {topic.name}", "declared, but does not exist", advice)
    for difference in found.refused:
        yield problem(f"topic {difference.topic}", str(difference), "see there")
    for difference in found.alter:
        yield warning(f"topic {difference.topic}", str(difference), advice)
    if found.same:
        yield ok("topics", f"{count(len(found.same), 'is', 'are')} as declared in {file}")


def graph(cluster: Cluster, group: Group[Any, Any]) -> Iterator[Finding]:
    """Check that a group's topics exist, with the same number of partitions."""
    subject = f"graph {group.name}"
    try:
        found = check_topics(group, cluster.admin)
        refuse_topics_of_others(group, cluster.admin)
    except ConfigurationError as error:
        yield problem(subject, str(error), "see there")
    else:
        partitions = found[group.input_topics[0]].partitions
        yield ok(subject, f"its {len(found)} topics exist; the inputs have {count(partitions, 'partition')}")
        for each in topic_warnings(group, found):
            yield warning(
                f"topic {each.topic}", f"{each.setting} is {each.value}: {each.effect}", each.advice
            )


def state_dir(folder: Path) -> Iterator[Finding]:
    """Check that tables can be stored in the folder, and how much space is free."""
    subject = f"state dir {folder}"
    try:
        # The check itself may fail too, for lack of access to a parent folder.
        there = next(each for each in (folder, *folder.parents) if each.exists())
        if not os.access(there, os.W_OK | os.X_OK):
            yield problem(subject, f"{there} is not writable", "give the user of the services write access")
        free = shutil.disk_usage(there).free
    except OSError as error:
        yield problem(
            subject,
            f"cannot be checked: {error.strerror}",
            "check its name, the permissions of its parent folders, and the disk",
        )
        return
    fact = f"{free / (1 << 20):,.0f} MiB are free"
    if free < DISK_PROBLEM_BYTES:
        yield problem(subject, fact, "free space: a processor that cannot write its table stops")
    elif free < DISK_WARNING_BYTES:
        yield warning(subject, fact, "check the sizes of the tables, and free space in time")
    else:
        yield ok(subject, fact)


def native_loops(choice: str) -> Iterator[Finding]:
    """Check that the inner loops in C can be loaded, where they are installed and not switched off."""
    try:
        import_module("streamtable_native").load()
    except ImportError as error:
        if choice != "off" and error.name != "streamtable_native":
            yield warning("native loops", f"Python does their work: {error}", "see there")
