"""The words of the field: turns that readers stumble over become fewer, in docs, comments, docstrings, logs and errors.

Counted for 100,000 words. What programs have made is left out. `python -m tests.architecture.test_words` lists the sentences.
"""

import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAMILIES = {
    "that of": (r"(that|those) of", 17, "repeat the noun: 'the offset of the group and the table's offset'"),
    "of which": (r"(of|by|with|from|to|in|for|at|on) which", 27, "make two sentences, or say whose, where, when"),
    "what is": (r"what (is|was|are|were|has|have)", 26, "name the thing: records, rows, the result"),
    "leave out": (
        r"(leav(e|es|ing) out|left out|giv(e|es|en|ing) back|gave back|hand(s|ed|ing)? over)", 6,
        "skip, omit, drop, return, pass",
    ),
}  # fmt: skip
"""The words of each family, how many there are at most, and what to write instead. Lower a number when they are fewer."""
GENERATED = re.compile(
    r"contracts/grpc/|contracts/records\.py$|reference/(api|cli)\.md$|tests/architecture/test_words\.py$"
)


def files() -> list[str]:
    done = subprocess.run(
        ["git", "ls-files", "*.md", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [
        name for name in done.stdout.splitlines() if not GENERATED.search(name) and (ROOT / name).exists()
    ]


@cache
def prose(name: str) -> str:
    """Return the prose of a file: all of a page; the comments and texts of a program."""
    text = (ROOT / name).read_text(encoding="utf-8")
    if name.endswith(".md"):
        return text
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join(each.string for each in tokens if each.type in {tokenize.STRING, tokenize.COMMENT})


def found(family: str) -> Iterator[tuple[str, str]]:
    """Yield the file and the surroundings of each word of a family."""
    pattern = re.compile(rf"\b{FAMILIES[family][0]}\b", re.IGNORECASE)
    for name in files():
        text = prose(name)
        for match in pattern.finditer(text):
            yield name, " ".join(text[max(0, match.start() - 50) : match.end() + 50].split())


@pytest.fixture(scope="module")
def words() -> int:
    return sum(len(re.findall(r"[A-Za-z']+", prose(name))) for name in files())


@pytest.mark.parametrize("family", FAMILIES)
def test_words_that_readers_stumble_over_become_fewer(family: str, words: int) -> None:
    _, most, instead = FAMILIES[family]
    frequency = len(list(found(family))) / words * 100_000
    assert frequency <= most, f"{frequency:.1f} for 100,000 words: {instead}"
    assert frequency > most - 2, f"there are only {frequency:.1f}: lower the number in FAMILIES"


if __name__ == "__main__":
    for each in FAMILIES:
        for place, sentence in found(each):
            print(f"{place}: {sentence}")
