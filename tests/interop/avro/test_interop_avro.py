"""We read Avro written by Java, and Java reads ours: bytes and fingerprints are the same on both sides.

`golden.json` holds the cases with Java's answers. Where Java and Maven are found the answers are asked for afresh, so
that both the file and the codec are checked; elsewhere the file stands for Java. After a change of the cases run

    python tests/interop/avro/test_interop_avro.py

which writes Java's answers into the file.
"""

import json
import os
import shutil
import subprocess
import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, assert_type
from uuid import UUID

import pytest

from contracts import records
from contracts.schema import RecordSchema
from exactavro import Schema
from localkafka.jars import COPY_GOAL
from streamtable.codec import Avro, Plain

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "golden.json"
CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text("utf-8"))
NAMES = {"UTC": UTC, "date": date, "datetime": datetime, "Decimal": Decimal, "UUID": UUID}
each_case = pytest.mark.parametrize("number", range(len(CASES)), ids=[case["name"] for case in CASES])


def avro_jars() -> Path | None:
    """A folder with the jars of `java/pom.xml`, fetched once; None where they cannot be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamtable" / "avro-1.12.1"
    if cache.exists():
        return cache
    maven = shutil.which("mvn")
    if maven is None:
        return None
    cache.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.parent) as folder:
        jars = Path(folder, "jars")
        command = [maven, "-q", "-B", "-f", str(HERE / "java" / "pom.xml"), COPY_GOAL]
        got = subprocess.run(
            [*command, f"-DoutputDirectory={jars}"], timeout=100, check=False, capture_output=True
        )
        if got.returncode != 0 or not jars.exists():
            return None
        if not cache.exists():  # another run may have been faster
            jars.rename(cache)
    return cache


def ask_java(questions: list[str]) -> list[str] | None:
    """An answer to each line; None where there is no Java or its jars cannot be had."""
    java = shutil.which("java")
    jars = avro_jars() if java else None
    if java is None or jars is None:
        return None
    run = subprocess.run(
        [java, "-Xmx256m", "-cp", f"{jars}/*", str(HERE / "java" / "Interop.java")],
        input="".join(f"{question}\n" for question in questions),
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def schema_of(case: dict[str, Any]) -> str:
    return json.dumps(case["schema"], ensure_ascii=False)


def questions_of(case: dict[str, Any]) -> list[str]:
    schema, datum = schema_of(case), json.dumps(case["json"])
    return [f"fingerprint {schema}", f"write {schema}\t{datum}", f"blocks {schema}\t{datum}"]


def codec_of(case: dict[str, Any]) -> Avro[Any]:
    return Avro(schema_of(case))


def value_of(case: dict[str, Any]) -> Any:
    return eval(case["python"], NAMES)


@pytest.fixture(scope="module")
def javas() -> list[dict[str, str]]:
    """Java's answers to each case: asked for now, or where there is no Java as they were committed."""
    answers = ask_java([question for case in CASES for question in questions_of(case)])
    if answers is None:
        return [{name: case[name] for name in ("fingerprint", "message", "blocks")} for case in CASES]
    groups = zip(answers[0::3], answers[1::3], answers[2::3], strict=True)
    return [dict(zip(("fingerprint", "message", "blocks"), group, strict=True)) for group in groups]


@pytest.mark.server  # asks Java, where it is
@each_case
def test_the_fingerprint_is_javas(javas: list[dict[str, str]], number: int) -> None:
    schema = Schema.load(schema_of(CASES[number]))
    assert schema.fingerprint[::-1].hex() == javas[number]["fingerprint"]


@pytest.mark.server  # asks Java, where it is
@each_case
def test_javas_message_is_read_and_ours_is_the_same(javas: list[dict[str, str]], number: int) -> None:
    codec, value = codec_of(CASES[number]), value_of(CASES[number])
    assert codec.decode(bytes.fromhex(javas[number]["message"])) == value
    assert codec.encode(value).hex() == javas[number]["message"]


@pytest.mark.server  # asks Java, where it is
@each_case
def test_javas_blocks_that_tell_their_sizes_are_read(javas: list[dict[str, str]], number: int) -> None:
    body = bytes.fromhex(javas[number]["blocks"])
    assert Avro(schema_of(CASES[number]), Plain()).decode(body) == value_of(CASES[number])


@pytest.mark.server  # asks Java, where it is
@each_case
def test_the_committed_answers_are_javas(javas: list[dict[str, str]], number: int) -> None:
    assert {name: CASES[number][name] for name in javas[number]} == javas[number]


@pytest.mark.server  # asks Java
def test_java_reads_what_we_write() -> None:
    """Java says the same about our bytes as about its own; where there is no Java, they are the same bytes."""
    ours = [codec_of(case).encode(value_of(case)).hex() for case in CASES]
    java_answers = ask_java(
        [f"read {schema_of(case)}\t{data}" for case, data in zip(CASES, ours, strict=True)]
    )
    assert (java_answers or [case["text"] for case in CASES]) == [case["text"] for case in CASES]
    assert ours == [case["message"] for case in CASES]


def test_some_of_javas_blocks_differ_from_its_messages() -> None:
    assert any(case["blocks"] != case["message"][20:] for case in CASES)


def test_a_generated_record_types_its_codec() -> None:
    assert_type(Avro(records.USER_CLICK), Avro[records.UserClick])


CONSTANTS = {name: value for name, value in vars(records).items() if isinstance(value, RecordSchema)}


@pytest.mark.parametrize("name", CONSTANTS)
def test_each_generated_record_makes_a_codec_that_reads_its_history(name: str) -> None:
    constant: RecordSchema[Any] = CONSTANTS[name]
    codec: Avro[Any] = Avro(constant)
    assert int.from_bytes(codec.schema.fingerprint, "little") == constant.fingerprint
    assert codec.schema.name == constant.name
    assert {Schema.load(version).fingerprint for version in constant.history} <= codec._known.keys()


def regenerate() -> None:
    answers = ask_java([question for case in CASES for question in questions_of(case)])
    if answers is None:
        raise SystemExit("needs Java and Maven")
    for number, case in enumerate(CASES):
        case["fingerprint"], case["message"], case["blocks"] = answers[3 * number : 3 * number + 3]
    texts = ask_java([f"read {schema_of(case)}\t{case['message']}" for case in CASES])
    for case, text in zip(CASES, texts or [], strict=True):
        case["text"] = text
    GOLDEN.write_text(json.dumps(CASES, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    regenerate()
