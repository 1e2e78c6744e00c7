"""The page of `report` and the HTML of `export`, opened in a real browser where there is one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.browser import browser, needs_browser
from tests.build import Transcript, instant, make_uuid
from tests.shell import Home, harbour

HOSTILE = "<script>console.log('run')</script><img src=http://x.invalid/y.png> & \"quotes\""


def history(home: Home) -> None:
    """A few weeks of work in three projects, a recall, and a session small enough to prune."""
    for number in range(6):
        cwd = f"/home/ana/project-{number % 3}"
        talk = Transcript(make_uuid(f"work {number}"), cwd=cwd)
        talk.count = number * 8_640 * 4
        for day in range(5):
            talk.count += 8_640
            talk.user(f"day {day} of {number}: {HOSTILE if number == 0 else 'the harbour'}")
            call = talk.call("Bash", {"command": "make"})
            talk.add("progress", data={"type": "bash_progress", "output": "tick " * 400 * (number + 1)})
            talk.result(call, "built\n" * 200 * (day + 1), parent=call["uuid"])
            talk.assistant("It is built.")
        home.write(talk, cwd.replace("/", "-"))
    home.write(harbour())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = Home(tmp_path_factory.mktemp("report"))
    (made.path / "fabled").mkdir(mode=0o700)
    (made.path / "fabled" / "config.toml").write_text(
        "[prune]\nmin_bytes = 0\nmin_gain_bytes = 0\nmin_gain = 0.0\nquiet_seconds = 0\ndrain_seconds = 1\n"
        "[capture]\nreserve_bytes = 0\n"
    )
    history(made)
    # What was written in records: all but the newlines between them.
    written = [path.read_bytes() for path in made.projects.rglob("*.jsonl")]
    (made.path / "written").write_text(str(sum(len(data) - data.count(b"\n") for data in written)))
    assert made.run("index").returncode == 0
    done = made.run("prune", make_uuid("work 5"), "--level", "standard", "--apply")
    assert done.returncode == 0, done.stderr
    done = made.run("report", "-o", "report.html")
    assert done.returncode == 0, done.stderr
    return made


def test_the_figures_add_up(home: Home) -> None:
    """Days, projects and totals tell the same sums, and the prune's saving is the file's own."""
    value = json.loads(home.run("report", "--json").stdout)
    totals = value["totals"]
    for key in ("written_bytes", "saved_bytes", "threads", "recalled"):
        assert sum(row[key] for row in value["days"]) == totals[key]
        assert sum(row[key] for row in value["projects"]) == totals[key]
    live = sum(path.stat().st_size for path in home.projects.rglob("*.jsonl"))
    assert totals["written_bytes"] == int((home.path / "written").read_text())
    assert totals["saved_bytes"] == value["prune"]["saved_bytes"] > 0
    assert totals["live_bytes"] == live
    stats = json.loads(home.run("stats", "--by", "day", "--json").stdout)
    assert stats["rows"][::-1] == value["days"]


def test_the_page_needs_nothing_but_itself(home: Home) -> None:
    """No address, script or style from elsewhere, and what transcripts say is text."""
    page = (home.path / "report.html").read_text()
    assert re.findall(r"""(?:src|href)=["'](?!data:,)""", page) == []
    assert "<script" not in page and "url(" not in page and "@import" not in page
    assert "&lt;script&gt;" in page and "default-src 'none'" in page
    assert (home.path / "report.html").stat().st_mode & 0o077 == 0


@needs_browser
@pytest.mark.parametrize("width", [1000, 480])
def test_a_browser_draws_every_chart(home: Home, width: int) -> None:
    """The charts have bars with a size, within their frames; the console is silent; nothing is fetched."""
    with browser() as seen:
        seen.open((home.path / "report.html").as_uri(), width)
        charts = seen.value("""
            [...document.querySelectorAll('svg.chart, svg.small')].map(svg => {
              const frame = svg.getBoundingClientRect();
              const bars = [...svg.querySelectorAll('rect.bar')].map(bar => bar.getBoundingClientRect());
              return {title: svg.querySelector('title').textContent, kind: svg.classList[0],
                      width: frame.width, height: frame.height, bars: bars.length,
                      sound: bars.every(b => b.width > 0 && b.height > 0 && b.left >= frame.left - 1 &&
                        b.right <= frame.right + 1 && b.top >= frame.top - 1 && b.bottom <= frame.bottom + 1),
                      tall: bars.some(b => b.height > frame.height / 3)};
            })""")
        assert [one for one in charts if not one["sound"] or not one["bars"]] == []
        titles = {one["title"] for one in charts}
        assert {"Bytes a day", "Threads a day", "Bytes written, by project", "Tokens, by thread",
                "Live, and saved by prunes"} <= titles  # fmt: skip
        assert all(one["tall"] for one in charts if one["kind"] == "small" or one["title"].endswith("a day"))
        days = json.loads(home.run("report", "--json").stdout)["days"]
        drawn = next(one["bars"] for one in charts if one["title"] == "Threads a day")
        assert 0 < drawn <= len([day for day in days if day["threads"]])
        colours = seen.value(
            "[...new Set([...document.querySelectorAll('rect.bar')].map(b => getComputedStyle(b).fill))]"
        )
        assert len(colours) >= 3 and "rgb(0, 0, 0)" not in colours
        assert seen.value("document.documentElement.scrollWidth <= innerWidth")
        assert seen.said == []
        assert [url for url in seen.fetched if not url.startswith(("file:", "data:"))] == []


@needs_browser
def test_a_browser_shows_an_exported_thread(home: Home) -> None:
    """Hostile text is shown as text, and nothing of it runs or is fetched."""
    found = json.loads(home.run("search", "quotes", "--all", "--json").stdout)["results"][0]["thread"]
    assert home.run("export", found, "-o", "thread.html").returncode == 0
    with browser() as seen:
        seen.open((home.path / "thread.html").as_uri())
        assert HOSTILE in seen.value("document.querySelector('section.user pre').textContent")
        assert seen.value("document.querySelectorAll('section.turn').length") == 4
        assert seen.said == []
        assert [url for url in seen.fetched if not url.startswith(("file:", "data:"))] == []


def test_without_a_history_the_page_still_is_one(tmp_path: Path) -> None:
    """An empty Map makes a page that says so, and an unwritable place is one line."""
    home = Home(tmp_path)
    assert home.run("index").returncode == 0
    assert home.run("report", "-o", "empty.html").returncode == 0
    assert "nothing yet" in (tmp_path / "empty.html").read_text()
    refused = home.run("report", "-o", "no/such/folder/x.html")
    assert refused.returncode == 1 and refused.stderr.count("could not be written") == 1
    assert "Traceback" not in refused.stderr


def test_instants_are_what_the_builder_says() -> None:
    """The history above spreads over days: ten seconds a record."""
    assert instant(0)[:10] != instant(8_640)[:10]
