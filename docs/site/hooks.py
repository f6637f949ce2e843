"""Hooks of mkdocs: the repository's pages outside docs/ become pages of the site, and links lead there.

README.md is the first page; each notebook of examples/ is one. A link to any other file of the repository gets a copy
of that file.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
DOCS = PurePosixPath("docs")
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md",
         "CHANGELOG.md": "changelog.md"}
NOTEBOOKS = PurePosixPath("examples/notebooks")
LINK = re.compile(r'(\]\()([^)#:\s]+)((?:#[^)\s]*)?(?: "[^"]*")?\))')


def on_files(files: Files, config: Any) -> Files:
    """Add the pages, and what any page links to, to the site."""
    for source, uri in PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / source)))
    for notebook in sorted((ROOT / NOTEBOOKS).glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=cells(notebook.read_text())))
    there = {file.src_uri for file in files}
    for file in [file for file in files if file.is_documentation_page()]:
        for _, target, _ in LINK.findall(file.content_string):
            path = repository_path(file.src_uri, target)
            if site_uri(path) not in there and (ROOT / path).is_file():
                there.add(site_uri(path))
                files.append(File.generated(config, site_uri(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let links name the site's files."""
    here = PurePosixPath(page.file.src_uri).parent

    def moved(link: re.Match[str]) -> str:
        uri = site_uri(repository_path(page.file.src_uri, link[2]))
        return f"{link[1]}{os.path.relpath(uri, here)}{link[3]}"

    return LINK.sub(moved, markdown)


def cells(notebook: str) -> str:
    """A notebook's text and code as Markdown; what its cells print is seen where it is run."""
    texts = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(notebook)["cells"]]
    return "\n\n".join(f"```python\n{text}\n```" if kind == "code" else text for kind, text in texts) + "\n"


def repository_path(page: str, target: str) -> str:
    """The path, from the repository's root, of what a link on a page of the site names."""
    sources = {uri: source for source, uri in PAGES.items()}
    if page.startswith("notebooks/"):
        return os.path.normpath(NOTEBOOKS / target)
    folder = PurePosixPath(sources[page]).parent if page in sources else (DOCS / page).parent
    return os.path.normpath(folder / target)


def site_uri(path: str) -> str:
    """Where a file of the repository is on the site."""
    if path in PAGES:
        return PAGES[path]
    inside = PurePosixPath(path)
    return str(inside.relative_to(DOCS) if inside.is_relative_to(DOCS) else inside)
