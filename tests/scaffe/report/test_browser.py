"""The report in a real browser: nothing overlaps or sticks out, in light and dark, wide and narrow; no errors."""

import json
import os
import re
import shutil
import subprocess

import pytest

from scaffe.report.page import html
from scaffe.report.run import find_runs
from tests.scaffe.report.files import write_log, write_trace

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MEASURE = """<script>
const overlapping = (boxes) => {
  const found = [];
  boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
    const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
    const along = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    if (across > 1 && along > 1) found.push([a, b]);
  }));
  return found;
};
const boxes = (parent, query) => [...parent.querySelectorAll(query)]
  .map((e) => [e.textContent.slice(0, 40), e.getBoundingClientRect()]).filter(([_, b]) => b.width && b.height);
const each = (query, inner) => [...document.querySelectorAll(query)].flatMap((e) => overlapping(boxes(e, inner)));
const result = {
  texts: each("svg", "text"), words: each(".legend", "li"), cells: each("tr", "th, td"),
  figures: overlapping(boxes(document, "figure, h1, h2, h3, dl, section > p")),
  sections: overlapping(boxes(document, "section")),
  width: innerWidth, scrolled: document.documentElement.scrollWidth,
  outside: [...document.querySelectorAll("figure > svg, figure > ul, .stack, dl, h1")]
    .filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80)),
  paper: getComputedStyle(document.body).backgroundColor,
  ink: getComputedStyle(document.querySelector("svg text")).fill,
  counts: ["section", "figure", "svg text"].map((q) => document.querySelectorAll(q).length),
};
document.title = JSON.stringify(result);
</script>"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium (Debian's package chromium)")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    for name in ("short", "a-name-that-is-rather-long-for-a-run-of-many-ranks"):
        (folder / name).mkdir()
        write_log(folder / name / "run.log", {10 * i: 2.5 / (i + 1) for i in range(12)}, {0: 0.1, 50: 0.7, 110: 0.91})
        write_trace(folder / name / "trace.json")
    paths = [str(path) for path in sorted(folder.iterdir())]
    text = html(find_runs(paths), "Two runs")
    (folder / "report.html").write_text(text)
    no_policy = re.sub(r"<meta http-equiv.*?>\n", "", text)
    (folder / "measured.html").write_text(no_policy.replace("</body>", f"{MEASURE}</body>"))
    return folder


def browse(page, profile, *flags):
    """What Chromium prints."""
    done = subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
         "--enable-logging=stderr", f"--user-data-dir={profile}", *flags, page.as_uri()],
        capture_output=True, text=True, timeout=200, env=os.environ | {"HOME": str(profile)})
    assert done.returncode == 0, done.stderr[-2000:]
    assert not [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return done.stdout


@pytest.mark.parametrize(("width", "scheme", "paper"), [(1400, 1, "rgb(255, 255, 255)"), (520, 0, "rgb(20, 24, 29)")],
                         ids=["wide and light", "narrow and dark"])
def test_nothing_overlaps(page, tmp_path, width, scheme, paper):
    shown = browse(page / "measured.html", tmp_path, f"--window-size={width},2000", "--dump-dom",
                   f"--blink-settings=preferredColorScheme={scheme}")
    title = re.search(r"<title>(\{.*?\})</title>", shown, re.S)
    assert title, shown[:500]
    result = json.loads(title[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert result["counts"][0] == 8
    assert result["counts"][1] >= 12
    assert result["counts"][2] > 100
    for what in ("texts", "words", "cells", "figures", "sections", "outside"):
        assert result[what] == [], what
    assert abs(result["width"] - width) < 30
    assert result["scrolled"] <= result["width"]
    assert result["paper"] == paper
    assert result["ink"] != result["paper"]


def test_the_page_as_it_is_shows_no_error(page, tmp_path):
    """With its policy, which allows no script and nothing from elsewhere."""
    picture = tmp_path / "report.png"
    browse(page / "report.html", tmp_path, "--window-size=1300,1000", f"--screenshot={picture}")
    assert picture.stat().st_size > 20_000
