"""What the pages say is so: their commands are parsed by the commands' own parsers, the paths that they name exist."""

import re
import tomllib

import pytest

from scaffe.cli import main as cli
from scaffe.flags import Flags
from tests.docs.pages import PAGES, ROOT, blocks, commands, exists, scaffe_words

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
ELLIPSIS = ("...", "…", "COMMAND")
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"^(?:[\w.-]+/)+(?:[\w.-]+\.(?:py|md|sh|cu|cuh|sbatch|json|prototxt|proto|pb|svg))?$")
MADE = re.compile(r"^(?:\.|build|\.venv|opt|usr|dev|proc)/")  # by commands, or of the system
OTHERS_FLAGS = {"version", "signal", "nodes", "kill_on_bad_exit"}
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
LISTED = re.findall(r"^ +- .*: ([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
FROM_THE_ROOT = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md",
                 "changelog.md": "CHANGELOG.md"}
SECTIONS = ["Start", "Coming from Caffe", "Clusters", "Collectives", "Strategies", "GPUs", "Measurements", "Internals",
            "API"]
ids = [str(page.relative_to(ROOT)) for page in PAGES]


class Parsed(Exception):
    """A command line was understood."""


@pytest.fixture
def parse_only(monkeypatch):
    """Commands parse their command line and go no further."""
    parse = Flags.parse

    def stop(self, argv):
        parse(self, argv)
        raise Parsed

    monkeypatch.setattr(Flags, "parse", stop)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_our_commands_are_understood(page, parse_only):
    for line in commands(page):
        words = scaffe_words(line.text)
        if not words or any(part in words for part in ELLIPSIS) or words[0] in ("help", "--version"):
            continue
        words = [word.split("|")[0] for word in words if word != "..."]
        assert words[0].replace("-", "_") in cli.command_names(), line
        if len(words) == 1 or words[-1] == "-h":
            continue  # the name of a command, not a whole line
        with pytest.raises(Parsed):
            assert cli.main(words) == 0, line


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_other_programs_are_there(page):
    make = (ROOT / "Makefile").read_text()
    for line in commands(page):
        words = line.text.replace("'", "").split()
        if words[0] == "make":
            targets = [word for word in words[1:words.index("#") if "#" in words else None] if "=" not in word]
            assert all(re.search(rf"^{re.escape(target)}:|^\.PHONY:.*\b{target}\b", make, re.M)
                       for target in targets), line
        if words[0] == "sbatch":
            assert any(exists(word) for word in words if word.endswith(".sbatch")), line
        if words[0].startswith("jobs/"):
            assert exists(words[0]), line
        if words[:2] == ["pip", "install"]:
            for extras in re.findall(r"\[([\w,]+)\]", line.text):
                assert set(extras.split(",")) <= set(EXTRAS), line
        for script in re.findall(r"python (\S+\.py)((?: \S+)*)", line.text):
            assert exists(script[0]), line
            source = (ROOT / script[0]).read_text()
            source += (ROOT / "benchmarks/figures.py").read_text() if "add_flag(" in source else ""
            for flag in re.findall(r" (--[a-z-]+)", script[1]):
                assert f'"{flag}"' in source, line


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_paths_and_links_exist(page):
    text = page.read_text()
    for target in LINK.findall(text):
        assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    for code in CODE.findall(prose):
        if PATH.match(code) and not MADE.match(code):
            assert exists(code), f"{page.name}: {code}"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_flags_in_the_text_exist(page, known):
    """A flag that stands by itself in the text, `-wire bf16`, is one of some command."""
    for code in CODE.findall(page.read_text()):
        found = re.match(r"^-{1,2}([a-z][a-z_-]+)(?:$|[ =])", code)
        if found and not code.startswith(("-X ", "-ftz")):
            assert found[1].replace("-", "_") in known, f"{page.name}: {code}"


@pytest.fixture
def known(monkeypatch):
    """The names of all commands' flags, glog's, and those of other programs that the pages name."""
    names = set(cli.GLOG_SWITCHES | cli.GLOG_VALUES | OTHERS_FLAGS)

    def note(self, argv):
        names.update(self.flags)
        raise Parsed

    monkeypatch.setattr(Flags, "parse", note)
    for name in cli.command_names():
        with pytest.raises(Parsed):
            cli.main([name])
    return names


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_a_page_is_short(page):
    """150 lines, but for what a script draws."""
    if page.parent in (ROOT, ROOT / "docs") and page.name not in ("layers.md", "benchmarks.md", "CONTRIBUTING.md"):
        assert len(page.read_text().splitlines()) <= 150


def test_every_page_is_looked_at():
    assert len(PAGES) >= 14
    assert sum(len(list(blocks(page))) for page in PAGES) >= 30


@pytest.mark.parametrize("name", ["docs/way.svg", "docs/architecture.md"])
def test_the_map_names_what_is_there(name):
    """The files and folders of the picture, and of the tables' first columns."""
    text = (ROOT / name).read_text()
    named = re.findall(r'font-family="monospace">([^<]*)<', text) + re.findall(r"^\| (`[^|]*) \|", text, re.M)
    paths = [word.strip("`,") for cell in named for word in cell.split()]
    assert len(paths) > 15
    assert [path for path in paths if not exists(path) and path not in ("…", "*.py")] == []


def test_every_folder_is_on_the_map():
    page = (ROOT / "docs/architecture.md").read_text()
    folders = [path for part in ("scaffe", "layers", "data", "collectives") for path in (ROOT / part).iterdir()
               if path.is_dir() and not path.is_symlink() and any(path.glob("*.py"))]
    assert [str(path) for path in folders if f"`{path.name}/" not in page] == []


def test_every_page_is_in_the_sites_list():
    docs = ROOT / "docs"
    pages = {str(path.relative_to(docs)) for path in docs.rglob("*.md")} | set(FROM_THE_ROOT)
    pages |= {f"notebooks/{path.stem}.md" for path in (ROOT / "examples/notebooks").glob("*.ipynb")}
    assert pages - set(LISTED) == set(), "missing under nav in mkdocs.yml"
    assert set(LISTED) - pages == set(), "under nav in mkdocs.yml, and not in docs/"
    assert len(LISTED) == len(set(LISTED))
    assert all((ROOT / source).is_file() for source in FROM_THE_ROOT.values())


def test_the_sections():
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^  - ([\w ]+):$", nav, re.M) == SECTIONS
