"""The facts about the machine in every line of results."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def facts() -> dict[str, Any]:
    """Commit, Python and machine; `load` is the load average before the run: much above 0 means that other programs were running."""
    return {
        "commit": commit(),
        "python": platform.python_version(),
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "system": f"{platform.system()} {platform.release()}",
            "load": round(os.getloadavg()[0], 1),
        },
    }


def commit() -> str:
    """Return the short commit hash, with a + if the working tree differs from it."""
    short = _git("rev-parse", "--short", "HEAD")
    return short + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or ("unknown" if done.returncode else "")


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
