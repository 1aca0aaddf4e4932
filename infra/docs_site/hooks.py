"""Extensions of MkDocs that the documentation site needs beyond mkdocs.yml.

- The home page is the repository's README, and the navigation is the list of pages in docs/README.md.
- Links to files outside of docs/ lead to the repository, if `STREAMTABLE_SITE_REPOSITORY` names one; else their text is plain.
- Lists are indented as Python-Markdown reads them: by four spaces a level, where CommonMark takes the width of the marker.
- `STREAMTABLE_SITE_URL` is the address of this version, for the canonical links that search engines read.
- Mermaid comes with the site instead of from another machine, and is loaded by the pages that have diagrams only.
"""

import os
import posixpath
import re
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
REPOSITORY: Final = os.environ.get("STREAMTABLE_SITE_REPOSITORY", "").rstrip("/")
ADDRESS: Final = os.environ.get("STREAMTABLE_SITE_URL", "")
MERMAID: Final = "assets/javascripts/mermaid.min.js"
HOME: Final = "index.md"
ALL_PAGES: Final = "pages.md"
SOURCES: Final = {HOME: "README.md", ALL_PAGES: "docs/README.md"}
"""The files of pages that have another name or folder in the site."""
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_ITEM = re.compile(r"( *)((?:[-*]|\d+\.) +)")
_FENCE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)


def navigation(pages: str) -> list[dict[str, Any]]:
    """Return the navigation that a list of pages describes: a section of it for each heading."""
    sections: list[dict[str, Any]] = [{"Home": HOME}]
    for section in re.split(r"^## ", pages, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        found = re.findall(r"^- \[(.*)\]\((.*)\)$", text, re.MULTILINE)
        sections.append({title: [{name: target} for name, target in found]})
    return [*sections, {"All pages": ALL_PAGES}]


def relink(markdown: str, page: str) -> str:
    """Return the text of a page of the site with links as the site needs them. Code is left alone."""
    source = SOURCES.get(page, f"docs/{page}")
    places = {file: name for name, file in SOURCES.items()}

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        inside = places.get(file) or (file.removeprefix("docs/") if file.startswith("docs/") else None)
        if inside is not None:
            return f"[{text}]({posixpath.relpath(inside, posixpath.dirname(page) or '.')}{anchor})"
        return f"[{text}]({REPOSITORY}/blob/main/{file}{anchor})" if REPOSITORY else text

    parts = _FENCE.split(markdown)
    return "".join(part if number % 2 else _LINK.sub(link, part) for number, part in enumerate(parts))


def indent_lists(markdown: str) -> str:
    """Return the same text with everything in a list indented by four spaces for each level of the list."""
    lines: list[str] = []
    levels: list[int] = []  # the columns at which the contents of the open items begin
    fence = separate = False  # whether an item that follows needs an empty line before it
    for line in markdown.splitlines():
        column = len(line) - len(line.lstrip())
        marks_fence = line.lstrip().startswith("```")
        item = None if fence else _ITEM.match(line)
        paragraph_goes_on = bool(lines and lines[-1].strip()) and not item and not marks_fence
        if line.strip() and not fence and not paragraph_goes_on:
            while levels and column < levels[-1]:
                levels.pop()
        if item and (levels[-1] if levels else 0) + 4 > column:
            lines += [""] if separate and lines[-1] else []
            lines.append(" " * 4 * len(levels) + line.lstrip())
            levels.append(column + len(item[2]))
        else:
            shift = 4 * len(levels) - (levels[-1] if levels else 0)
            lines.append(" " * max(column + shift, 0) + line.lstrip() if line.strip() else "")
        fence ^= marks_fence
        separate = (
            bool(line.strip()) and not item and (separate or not levels or not lines[-2:-1] or not lines[-2])
        )
    return "\n".join(lines) + "\n"


def on_config(config: Any) -> Any:
    """Set the navigation, the address, and where pages are edited."""
    config.nav = navigation((ROOT / "docs" / "README.md").read_text())
    # The switch of versions finds the same page of another version by its sitemap, which needs any address.
    config.site_url = f"{ADDRESS or 'http://localhost/'}".rstrip("/") + "/"
    if REPOSITORY:
        config.edit_uri_template = f"{REPOSITORY}/edit/main/docs/{{path}}"
    return config


def on_files(files: Any, config: Any) -> Any:
    """Put the README at the top, the list of pages beside it, and Mermaid among the assets."""
    readme = files.get_file_from_path("README.md")
    generated = type(readme).generated
    files.remove(readme)
    for name, source in SOURCES.items():
        files.append(generated(config, name, content=(ROOT / source).read_text()))
    files.append(generated(config, MERMAID, abs_src_path=os.environ["STREAMTABLE_SITE_MERMAID"]))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links and lists, and name the sources of the pages that have another name here."""
    name = page.file.src_uri
    if REPOSITORY and name in SOURCES:
        page.edit_url = f"{REPOSITORY}/edit/main/{SOURCES[name]}"
    return indent_lists(relink(markdown, name))


def on_page_context(context: Any, page: Any, **_: Any) -> Any:
    """Give pages no canonical link to an address that was not configured; the sitemap has been written by now."""
    if not ADDRESS:
        page.canonical_url = None
    return context


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Load Mermaid on pages with diagrams, before the theme's scripts look for it."""
    if 'class="mermaid"' not in output:
        return output
    script = f'<script src="{posixpath.relpath(MERMAID, page.url or ".")}"></script>'
    return output.replace("</head>", f"{script}</head>", 1)
