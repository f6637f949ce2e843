"""Who claims a speed outside docs/benchmarks.md quotes a kept figure: by a link to its section, and its name.

Decisions (docs/design) are dated records: what was measured then stands beside its date, and is not measured again.
"""

import importlib
import json
import re
import sys

import pytest

from tests.docs.pages import PAGES, ROOT

TEXT = (ROOT / "benchmarks/page.md").read_text()
CLAIMING = [page for page in PAGES if page != ROOT / "docs/benchmarks.md"]
DESIGN = sorted((ROOT / "docs/design").glob("*.md"))
NUMBER = r"\d[\d.,]*"
UNIT = r"(?:s|ms|us|µs|seconds|minutes)\b"
MULTIPLE = rf"(?:(?:{NUMBER} ?(?:times|x|×)|[Tt]wice|[Hh]alf|a (?:third|quarter)) )"
CLAIM = re.compile("|".join((
    rf"{MULTIPLE}(?:[\w ]+ )?(?:as|so) (?:fast|long)\b",
    rf"{NUMBER}(?: times)? (?:of )?(?:its|the|their|\w+'s) (?:\w+ )?(?:speed|rate|pace|images a second)\b",
    rf"{MULTIPLE}(?:the )?(?:time|speed|images a second)\b",
    rf"{NUMBER} ?(?:%|times) (?:faster|slower|longer|shorter)",
    rf"{NUMBER} (?:images|iterations|steps|records)(?:/s| a second)",
    rf"{NUMBER} [KMGT]i?B/s|{NUMBER} [GT]FLOP/s",
    rf"\b(?:takes?|took|costs?|needs?|spends?) (?:about |some |only |up to )?{NUMBER}(?: (?:to|or) {NUMBER})? {UNIT}",
    rf"{NUMBER} ?× ", rf"{NUMBER}x\b",
)))


@pytest.fixture
def quotes(monkeypatch):
    """benchmarks/quotes.py, which is in no package."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("quotes")
    for name in ("quotes", "figures"):
        sys.modules.pop(name, None)


@pytest.fixture
def keep(tmp_path):
    """Keeps tables as benchmarks do, each with columns and rows."""
    def write(name, columns, *rows):
        (tmp_path / f"{name}.json").write_text(json.dumps({"columns": columns, "rows": rows}))
        return tmp_path
    return write


def claims(text, link=re.compile(r"\[[^]]*\]\([^)]*benchmarks\.md[^)]*\)")):
    """The claims of a page but for those in links to the benchmarks, each without line breaks; code claims nothing."""
    prose = re.sub(r"^    .*$", "", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), flags=re.M)
    unlinked = link.sub("§", re.sub(r"`[^`\n]*`", "", prose))
    return [found[0] for found in CLAIM.finditer(re.sub(r"(?<!\n)\n(?![\n|])", " ", unlinked))]


def sections(text):
    """The text of each section, by the anchor of its heading."""
    parts = re.split(r"^#+ (.*)$", text, flags=re.M)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-"): part
            for title, part in zip(parts[1::2], parts[2::2], strict=True)}


def names(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", CLAIMING, ids=names)
def test_no_speed_is_claimed_but_by_a_kept_figure(page):
    assert claims(page.read_text()) == []


@pytest.mark.parametrize("page", CLAIMING, ids=names)
def test_quoted_figures_are_those_that_are_kept(page, quotes):
    assert quotes.quoted(page.read_text(), ROOT / "benchmarks/results") == page.read_text(), "make results"


@pytest.mark.parametrize("page", CLAIMING + DESIGN, ids=names)
def test_a_figure_stands_where_its_link_leads(page, quotes):
    """By name: in the section with that subject's tables. Without one: in that section's own text."""
    there = sections(TEXT)
    for quote, _, anchor, name in quotes.LINK.findall(page.read_text()):
        if name:
            assert f"{{{{ {name.split('.')[0].split(' / ')[0]} }}}}" in there[anchor], name
        else:
            assert set(numbers(quote)) <= set(numbers(there[anchor])), quote


def numbers(text):
    return re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?!\w)", text)


def test_the_readme_quotes_by_name(quotes):
    assert sum(bool(name) for *_, name in quotes.LINK.findall((ROOT / "README.md").read_text())) >= 6


@pytest.mark.parametrize("page", DESIGN, ids=names)
def test_what_a_decision_claims_is_dated(page):
    undated = [claim for part in re.split(r"^## ", page.read_text(), flags=re.M) if not re.search(r"20\d\d-\d\d", part)
               for claim in claims(part)]
    assert undated == []


@pytest.mark.parametrize("text", [
    "It is 1.4 to 2.6 times as fast.", "LeNet is twice\nas fast as there.", "It takes half the time of DTensor.",
    "Steps are 20 % faster.", "CaffeNet makes 21,306 images/s.", "32,000 images a second", "0.41 of its speed",
    "2.6 times the speed of eager", "The copy runs at 4.1 GB/s.", "A step takes about 0.3 s.", "| ResNet-18 | 1.08 × |",
    "1.3x", "Reading took 30 seconds."])
def test_a_claim_is_found(text):
    assert len(claims(text)) == 1


@pytest.mark.parametrize("text", [
    "It is [1.4 to 2.6](docs/benchmarks.md#readers \"readers-peers / x / *\") times as fast.", "at most 4 % may differ",
    "links of 1 Gbit/s", "The deadline is 900 s.", "a limit of 38 % of 2 GB", "    0.3 s, 1,000 images/s\n",
    "```\n5 times as fast\n```", "Losses differ by 0.4 %.", "`-slack 3` is 2 times as many bytes"])
def test_what_is_quoted_or_no_speed_is_none(text):
    assert claims(text) == []


COLUMNS = ["way", "ms", "x", "note"]


def test_a_figure_is_a_cell_by_name(quotes, keep):
    folder = keep("some.2.machine", COLUMNS, ["ours *", {"median": 12.34, "spread": 0.1}, 1.84, None])
    assert quotes.figure("some.2 / ms / ours", folder) == "12.3"
    assert quotes.figure("some.2 / x / ours", folder) == "1.8"
    assert quotes.quoted('as [9](benchmarks.md#a "some / x / ours"), [7](benchmarks.md#a)', folder) \
        == 'as [1.8](benchmarks.md#a "some / x / ours"), [7](benchmarks.md#a)'


def test_several_rows_and_machines_are_a_range(quotes, keep):
    keep("some.2.one", COLUMNS, ["lenet, a", 3, "1.28, 1.51", ""], ["lenet, b", 4, 2.0, ""], ["other", 5, 9, ""])
    folder = keep("some.2.two", COLUMNS, ["lenet, a", 6, "0.95 to 0.98", ""])
    keep("some.2-large.two", COLUMNS, ["lenet, a", 7, 11, ""])
    assert quotes.figure("some.2 / x / lenet*", folder) == "0.95 to 2"
    assert quotes.figure("some.2-large / x / *", folder) == "11"


def test_two_rows_are_a_ratio_of_each_machine(quotes, keep):
    keep("some.one", COLUMNS, ["slow", 9, 1, ""], ["fast", 3, 1, ""])
    folder = keep("some.two", COLUMNS, ["slow", 10, 1, ""], ["fast", 4, 1, ""])
    assert quotes.figure("some / ms / slow / fast", folder) == "2.5 to 3"


@pytest.mark.parametrize("name", ["none / ms / ours", "some / s / ours", "some / ms / theirs", "some / note / ours"])
def test_a_name_of_no_figure_is_refused(quotes, keep, name):
    folder = keep("some.one", COLUMNS, ["ours", 3, 1, "quiet"])
    with pytest.raises(ValueError, match=re.escape(repr(name))):
        quotes.figure(name, folder)
