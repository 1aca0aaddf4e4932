"""A job as a process of its own that dies at a step: `python dying.py JOB "STEP:N" ARGUMENT...`.

At the N-th time that it reaches the step, it and the Java under it are killed as by a power cut.
"""

import importlib
import os
import signal
import sys

job, (step, _, times) = sys.argv[1], sys.argv[2].partition(":")
left = int(times)


def reached(name: str) -> None:
    global left  # noqa: PLW0603 - a program of one function
    if name == step:
        left -= 1
        if left == 0:
            os.killpg(0, signal.SIGKILL)


sys.exit(importlib.import_module(f"streamtable_spark.jobs.{job}").work(sys.argv[3:], reached))
