"""Whatever bytes come, the decoders neither end the process nor fill its memory: see `codec_fuzz`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SEED = os.environ.get("FAULTS_SEED", "20260")
SHORT_SECONDS = 2.0
LONG_SECONDS = float(os.environ.get("FAULTS_SECONDS", "120"))
DEATH_SECONDS = 60.0  # after this, it hangs

# The largest message that a topic takes by default, all of it small values: what it may grow to.
GREEDY = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1_000_000_000, 1_000_000_000))
from streamtable.codec import Avro, Json, Plain
from streamtable.errors import DeserializationError
def record(*types):
    return {"type": "record", "name": "R", "fields": [{"name": f"f{i}", "type": t} for i, t in enumerate(types)]}
SIZE = 1_000_000
count = Avro("long", Plain()).encode(SIZE)
for codec, data in [
    (Avro({"type": "array", "items": record("boolean", *["null"] * 8)}, Plain()), count + bytes(SIZE + 1)),
    (Avro({"type": "array", "items": {"type": "map", "values": "int"}}, Plain()), count + bytes(SIZE + 1)),
    (Avro({"type": "array", "items": {"type": "array", "items": record("boolean")}}, Plain()), b"\\x02" * SIZE),
    (Avro({"type": "array", "items": "string"}, Plain()), count + bytes(SIZE + 1)),
    (Json(), b"[" + b"[]," * (SIZE // 3) + b"[]]"),
    (Json(), b"[" * SIZE),
    (Json(), b'{"a":' * (SIZE // 5)),
]:
    try:
        codec.decode(data)
    except DeserializationError:
        pass
print("done", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def run(*command: str, seconds: float) -> str:
    ended = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds + DEATH_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def fuzz(seconds: float) -> None:
    said = run("-m", "tests.hostile.codec_fuzz", "--seed", SEED, "--seconds", str(seconds), seconds=seconds)
    assert "rounds, at most" in said
    print(said)


def test_for_a_few_seconds_no_bytes_do_harm() -> None:
    fuzz(SHORT_SECONDS)


@pytest.mark.faults_long
def test_for_long_no_bytes_do_harm() -> None:
    fuzz(LONG_SECONDS)


def test_a_megabyte_of_the_smallest_values_fits_the_memory() -> None:
    assert "done" in run("-c", GREEDY, seconds=20)
