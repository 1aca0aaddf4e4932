"""All that scripts, recipes, the compose file and CI fetch is the same tomorrow: by a digest, or an exact version.

Pages for readers are not covered, nor are the commands of theirs that tests/docs runs.
"""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

import pytest

ROOT = Path(__file__).parents[2]
NOT_OURS = {".git", ".venv", ".hypothesis", "build", "dist", "docs", "node_modules", "__pycache__"}
# The archives of Debian are signed, and keep only the newest release of a package, with its security updates.
SIGNED = {".ci/run", "infra/docker/Dockerfile"}
# An answer that is wanted as of today.
ANSWERS = {"https://api.osv.dev/v1/vulns/"}
SCRIPTS = re.compile(r"(^|/)(Makefile|Dockerfile[^/]*|run|[^/]*\.(sh|ya?ml))$")
# PostgreSQL's versions have two numbers.
EXACT_IMAGE = re.compile(r"((:v?\d+\.\d+\.\d+|postgres:\d+\.\d+)[\w.-]*|@sha256:[0-9a-f]{64})$")
OUR_IMAGE = re.compile(r"\$\{STREAMTABLE_REGISTRY|streamtable/|\*|service$|\$\{BASE}|on-")
REMOTE = re.compile(r"https?://(?!127\.0\.0\.1|localhost|example\.)[\w.-]+\.\w+/")
CLIENTS = {"urllib.request", "http.client", "requests", "httpx"}


def files() -> Iterator[tuple[str, str]]:
    """Return the name and the text of each file that may fetch something."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [each for each in folders if each not in NOT_OURS]
        for path in (Path(folder, name) for name in names):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix in {".py", ".txt", ".xml", ".mod"} or SCRIPTS.search(name):
                yield name, path.read_text(encoding="utf-8")


def unpinned(name: str, text: str) -> list[str]:
    """Return what a file fetches that may be something else tomorrow."""
    if name.endswith(".py"):
        if name == "tests/architecture/test_fetches.py" or name.startswith("tests/docs/"):
            return []
        return [flaw for words in commands_of_program(text) if (flaw := flaw_of(name, words))]
    if name.endswith(".txt"):
        entries = re.split(r"\n(?=\S)", text)
        return [
            each
            for each in entries
            if re.match(r"[\w.-]+(\[.*])? *(==|>=|~=)", each) and "sha256:" not in each
        ]
    if name.endswith(".xml"):
        return list(open_versions(fromstring(text)))
    if name.endswith(".mod"):
        return [] if (ROOT / name).with_suffix(".sum").exists() else ["no go.sum"]
    lines = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    commands = (re.findall(r"[^\s,;|()\[\]{}\"'`]+", line) for line in lines)
    return [
        *(flaw for words in commands if (flaw := flaw_of(name, words))),
        *(line.strip() for line in lines if not all(map(is_exact, images_of(line)))),
    ]


def commands_of_program(text: str) -> Iterator[list[str]]:
    """Return the strings of each function, and of the statements outside: a command is made of some of them."""
    tree = ast.parse(text)
    imported = {each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    for part in (
        inner for node in tree.body for inner in (node.body if isinstance(node, ast.ClassDef) else [node])
    ):
        words = [str(node.value) for node in ast.walk(part) if isinstance(node, ast.Constant) and node.value]
        yield [*words, *(["curl"] if imported & CLIENTS else [])]


def flaw_of(name: str, words: list[str]) -> str | None:
    """Return the flaw of a command."""
    has = {*words, *(Path(word).name for word in words if not word.startswith("http"))}
    command = " ".join(words)
    remote = {word for word in words if REMOTE.match(word)} - ANSWERS
    flaws = {
        "pip without --require-hashes or --no-index": "pip" in has
        and has & {"install", "wheel", "download"}
        and not has & {"--require-hashes", "--no-index"},
        "a tool whose dependencies are not locked": has & {"uvx", "pipx", "npx"}
        or re.search(r"\b(uv tool (run|install)|npm (ci|install)) ", command),
        "sources without a digest": re.search(r"\b(git clone|go install) ", command),
        "a Maven plugin without a version": "mvn" in has and re.search(r" \w+:\w+", command),
        "apt-get in another place than SIGNED": {"apt-get", "install"} <= has and name not in SIGNED,
        f"a download without a digest: {', '.join(sorted(remote))}": has & {"curl", "wget"}
        and remote
        and "sha256sum" not in has,
    }
    return next((flaw for flaw, found in flaws.items() if found), None)


def images_of(line: str) -> list[str]:
    """Return the images and actions that a line names."""
    return re.findall(r"^\s*(?:-\s+)?(?:image:|uses:|FROM|ARG BASE=) *(?:&\S+ )?(\S+)", line)


def is_exact(image: str) -> bool:
    """Return whether an image of others has an exact version or a digest, or an action a commit."""
    image = re.sub(r"^\$\{STACK_\w+:-(.*)}$", r"\1", image)
    return bool(
        OUR_IMAGE.match(image)
        or image in {"packages", "own"}
        or EXACT_IMAGE.search(image)
        or re.search(r"@[0-9a-f]{40}$", image)
        or image.startswith("./")
    )


def open_versions(project: Element) -> Iterator[str]:
    """Return the dependencies and plugins of a pom.xml that have no exact version."""
    for element in project.iter():
        if element.tag.rpartition("}")[2] in {"dependency", "plugin", "parent"}:
            fields = {each.tag.rpartition("}")[2]: each.text or "" for each in element}
            if not re.fullmatch(r"\d[\w.-]*", fields.get("version", "")) or "SNAPSHOT" in fields["version"]:
                yield fields["artifactId"]


def test_all_that_is_fetched_is_pinned() -> None:
    texts = dict(files())
    assert {
        "Makefile",
        ".ci/run",
        "docker-compose.yml",
        "infra/docker/Dockerfile",
        "spark/pom.xml",
    } <= texts.keys()
    assert {name: flaws for name, text in texts.items() if (flaws := unpinned(name, text))} == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("docker-compose.yml", "    image: redis:latest\n"),
        ("docker-compose.yml", "    image: ${STACK_REDIS_IMAGE:-redis:8}\n"),
        ("docker-compose.yml", "    image: redis\n"),
        ("Dockerfile", "FROM python:3.11 AS base\n"),
        ("Dockerfile", "ARG BASE=python:slim\n"),
        ("Dockerfile", "RUN /tools/bin/pip install --quiet \\\n    -r /locks/tools.txt\n"),
        ("Dockerfile", "RUN curl -sSfL https://tools.org/tool.tar.gz | tar xz\n"),
        (".github/workflows/ci.yml", "      - uses: actions/checkout@v5\n"),
        (".ci/run", "npx playwright install\n"),
        (".ci/other", "apt-get -qq install --no-install-recommends chromium\n"),
        ("Makefile", "tool:\n\t$(PY) -m uv tool run pip-audit==2.10.1\n"),
        ("infra/fetch.py", 'def fetch():\n    run([PYTHON, "-m", "pip", "install", "six==1.0"])\n'),
        ("infra/fetch.py", 'import urllib.request\nURL = "https://tools.org/tool.tar.gz"\n'),
        ("bench/peer.py", 'RUN = ("mvn", "-q", "dependency:copy-dependencies")\n'),
        ("bench/requirements.txt", "quixstreams==3.28.1\n"),
        ("bench/pom.xml", "<project><dependency><artifactId>a</artifactId></dependency></project>"),
        (
            "bench/pom.xml",
            "<project><plugin><artifactId>a</artifactId><version>[1,2)</version></plugin></project>",
        ),
        ("bench/none/go.mod", "module none\n"),
    ],
)
def test_what_may_be_something_else_tomorrow_is_refused(name: str, text: str) -> None:
    assert unpinned(name, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("docker-compose.yml", "    image: ${STACK_REDIS_IMAGE:-redis:8.10.2}\n"),
        ("docker-compose.yml", f"    image: redis@sha256:{'0' * 64}\n"),
        ("docker-compose.yml", "    test: [CMD, curl, -sf, 'http://127.0.0.1:9200/health']\n"),
        ("Dockerfile", "RUN curl -o tool https://tools.org/tool && echo '0 tool' | sha256sum -c\n"),
        (".github/workflows/ci.yml", f"      - uses: actions/checkout@{'0' * 40}\n"),
        (
            "infra/fetch.py",
            'def fetch():\n    run(["pip", "install", "--require-hashes", "-r", "lock.txt"])\n',
        ),
        ("bench/requirements.txt", f"six==1.0 \\\n    --hash=sha256:{'0' * 64}\n"),
    ],
)
def test_digests_and_exact_versions_are_accepted(name: str, text: str) -> None:
    assert unpinned(name, text) == []
