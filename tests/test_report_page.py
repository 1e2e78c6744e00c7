"""The page of `report` and the HTML of `export`, opened in a real browser where there is one."""

from __future__ import annotations

import json
import re
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabled.present import Style, charts, report
from tests.browser import Browser, browser, needs_browser
from tests.build import Transcript, instant, make_uuid
from tests.shell import Home, harbour

HOSTILE = "<script>console.log('run')</script><img src=http://x.invalid/y.png> & \"quotes\""
COMMAND = "<command-message>tide is running…</command-message>\n<command-name>/tide</command-name>"


def history(home: Home) -> None:
    """A few weeks of work in three projects, a subagent, recalls, and two sessions worth a prune."""
    talks = []
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
        talk.put({"type": "last-prompt", "lastPrompt": "no time is told of this", "sessionId": talk.session})
        talks.append(talk)
    talks[1].user(f"{COMMAND}\n<command-args>{'the ebb ' * 4_000}</command-args>")
    first, second = (str(talk.records[0]["promptId"]) for talk in talks[2:4])
    for name in (f"{first},{second}", f"{first[:12]},{make_uuid('elsewhere')}"):
        talks[4].count += 1
        talks[4].user(f'<historical_context source="fabled" arcs="{name}" nonce="1">\nx\n</historical_context>\ngo on')
        talks[5].user(f'<historical_context source="fabled" arcs="{name}" nonce="1">\nx\n</historical_context>\ngo on')
    side = Transcript(talks[0].session, cwd=talks[0].cwd, agent="a1b2", sidechain=True)
    side.count = 8_640
    side.user("count the boats")
    side.assistant("Seven.")
    for talk in talks:
        home.write(talk, talk.cwd.replace("/", "-"))
    folder = home.projects / talks[0].cwd.replace("/", "-") / talks[0].session / "subagents"
    folder.mkdir(parents=True)
    (folder / "agent-a1b2.jsonl").write_bytes(side.data)
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
    for name in ("work 4", "work 5"):
        before = sum(path.stat().st_size for path in made.projects.rglob("*.jsonl"))
        done = made.run("prune", make_uuid(name), "--level", "standard", "--apply")
        assert done.returncode == 0, done.stderr
    after = sum(path.stat().st_size for path in made.projects.rglob("*.jsonl"))
    (made.path / "saved").write_text(str(before - after))
    done = made.run("undo", make_uuid("work 4"), "--apply")
    assert done.returncode == 0, done.stderr
    done = made.run("report", "-o", "report.html")
    assert done.returncode == 0, done.stderr
    return made


def told(home: Home, *more: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(home.run("report", "--json", *more).stdout)
    return value


def test_the_figures_add_up(home: Home) -> None:
    """Days, projects and totals tell the same sums; bytes are the files' own, with or without a time, of subagents
    too; what was undone is not saved; two spellings of a thread are one."""
    value = told(home)
    totals = value["totals"]
    for key in ("written_bytes", "saved_bytes", "threads", "recalled", "records", "est_tokens"):
        assert sum(row[key] for row in value["days"]) == totals[key]
        assert sum(row[key] for row in value["projects"]) == totals[key]
    live = sum(path.stat().st_size for path in home.projects.rglob("*.jsonl"))
    assert totals["written_bytes"] == int((home.path / "written").read_text())
    assert totals["live_bytes"] == sum(row["live_bytes"] for row in value["projects"]) == live
    saved = int((home.path / "saved").read_text())
    assert totals["saved_bytes"] == value["prune"]["saved_bytes"] == saved > 0
    assert (totals["prunes"], sum(rule["bytes"] for rule in value["prune"]["rules"])) == (1, saved)
    vault = sum(path.stat().st_size for path in (home.path / "fabled" / "data" / "vault").rglob("*.zst"))
    assert totals["vault_bytes"] == sum(row["vault_bytes"] for row in value["projects"]) == vault
    stats = json.loads(home.run("stats", "--by", "day", "--json").stdout)
    assert stats["rows"][::-1] == value["days"] and stats["totals"] == totals
    recall = value["recall"]
    assert (recall["threads"], recall["unknown"], recall["sessions"], totals["recalled"]) == (3, 1, 2, 8)
    assert [(row["times"], row["known"]) for row in recall["most"]] == [(4, True), (2, True), (2, False)]


def test_a_time_asked_for_bounds_every_figure(home: Home) -> None:
    """Sessions, projects and their live bytes are those that did something then; nothing of another time is told."""
    days = [row["day"] for row in told(home)["days"]]
    value = told(home, "--since", days[2], "--until", days[6])
    assert [row["day"] for row in value["days"]] == days[2:7]
    active = {row["project"]: row["sessions"] for row in value["projects"]}
    assert value["totals"]["sessions"] == sum(active.values()) < 7
    assert value["totals"]["live_bytes"] == sum(row["live_bytes"] for row in value["projects"])
    assert (value["totals"]["prunes"], value["totals"]["recalled"], value["totals"]["vault_bytes"]) == (0, 0, 0)


def test_the_page_needs_nothing_but_itself(home: Home) -> None:
    """No address, script or style from elsewhere, what transcripts say is text, and titles are as in every list."""
    page = (home.path / "report.html").read_text()
    assert re.findall(r"""(?:src|href)=["'](?!data:,)""", page) == []
    assert "<script" not in page and "url(" not in page and "@import" not in page
    assert "&lt;script&gt;" in page and "default-src 'none'" in page
    assert "/tide the ebb" in page and "command-" not in page
    assert (home.path / "report.html").stat().st_mode & 0o077 == 0


CHARTS = """
[...document.querySelectorAll('figure')].map(figure => {
  const svg = figure.querySelector('svg.chart'), frame = svg.getBoundingClientRect();
  const bars = [...svg.querySelectorAll('rect.bar')].map(bar => {
    const box = bar.getBoundingClientRect();
    return {said: bar.textContent, left: box.left, right: box.right, top: box.top, bottom: box.bottom};
  });
  const words = kind => [...figure.querySelectorAll(kind + ' span')].map(one => one.getBoundingClientRect())
    .filter(box => box.width).map(box => [box.left, box.right, box.top, box.bottom]);
  return {title: svg.querySelector('title').textContent, said: svg.querySelector('desc').textContent,
          frame: [frame.left, frame.right, frame.top, frame.bottom], bars, ys: words('.ys'), xs: words('.xs'),
          lines: svg.querySelectorAll('path.line').length, role: svg.getAttribute('role'),
          levels: [...figure.querySelectorAll('.ys span')].map(one => one.textContent),
          zero: svg.querySelector('.zero').getBoundingClientRect().top,
          rows: [...figure.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))};
})"""


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_a_browser_draws_every_chart(home: Home, width: int, dark: bool) -> None:
    """Bars are as high as their figures, from nothing on; no words overlap; the console is silent, nothing is
    fetched, and no script could run."""
    with browser() as seen:
        seen.open((home.path / "report.html").as_uri(), width, dark)
        drawn = {one["title"]: one for one in seen.value(CHARTS)}
        assert list(drawn) == [
            "Written in all", "Bytes written and saved, by week", "Threads begun, by week",
            "Added to the Vault, packed, by week", "Recalls, by week",
        ]  # fmt: skip
        for one in drawn.values():
            left, right, top, bottom = one["frame"]
            assert (one["role"] == "img" and one["said"] and one["rows"] and one["bars"]) or one["lines"]
            assert all(left - 1 <= bar["left"] < bar["right"] <= right + 1 for bar in one["bars"])
            assert all(top - 1 <= bar["top"] < bar["bottom"] <= bottom + 1 for bar in one["bars"])
            assert not overlapping(one["xs"], 0) and not overlapping(one["ys"], 2), one["title"]
            assert {"0", "0 B"} & set(one["levels"])
        begun = drawn["Threads begun, by week"]
        threads = {}
        for row in told(home)["days"]:
            if row["threads"]:
                day = date.fromisoformat(row["day"])
                threads[day - timedelta(day.weekday())] = (
                    threads.get(day - timedelta(day.weekday()), 0) + row["threads"]
                )
        figures = [int(bar["said"].rpartition(" ")[2]) for bar in begun["bars"]]
        assert figures == [number for _, number in sorted(threads.items())]
        assert [int(row[1]) for row in begun["rows"]] == figures
        most = int(begun["levels"][-1])
        for bar, figure in zip(begun["bars"], figures, strict=True):
            tall = (begun["zero"] - begun["frame"][2]) * figure / most
            assert bar["bottom"] - bar["top"] == pytest.approx(tall, abs=1.5)
        both = drawn["Bytes written and saved, by week"]["bars"]
        zero = drawn["Bytes written and saved, by week"]["zero"]
        assert [bar["said"] for bar in both if bar["top"] >= zero - 1] == [
            bar["said"] for bar in both if "saved" in bar["said"]
        ]
        colours = seen.value(
            "[...new Set([...document.querySelectorAll('rect.bar')].map(b => getComputedStyle(b).fill))]"
        )
        assert len(colours) == 4 and "rgb(0, 0, 0)" not in colours
        assert silent_and_fits(seen)


@needs_browser
def test_every_bar_of_a_table_has_the_same_scale(home: Home) -> None:
    """Those in cells too: as long as what stands behind them, the rows' names read as their heads."""
    with browser() as seen:
        seen.open((home.path / "report.html").as_uri())
        bars = seen.value("""
            [...document.querySelectorAll('table')].map(table =>
              [...table.querySelectorAll('.share svg')].map(svg => [svg.getBoundingClientRect().width,
                [...svg.querySelectorAll('rect')].reduce((sum, r) => sum + r.getBoundingClientRect().width, 0)]))
            .filter(rows => rows.length)""")
        assert len(bars) >= 4
        for rows in bars:
            assert len({round(room) for room, _ in rows}) == 1 and max(part for _, part in rows) <= rows[0][0] + 1
        projects = [row["written_bytes"] for row in told(home)["projects"]]
        assert [part for _, part in bars[0]] == [
            pytest.approx(bars[0][0][0] * one / projects[0], abs=2) for one in projects
        ]
        assert seen.value(
            "document.querySelectorAll('table caption').length == document.querySelectorAll('table').length"
        )
        assert seen.value("document.querySelectorAll('[role=rowheader]').length") > 10


@needs_browser
@pytest.mark.parametrize(("days", "unit"), [(1, "day"), (30, "day"), (400, "week"), (1_100, "month")])
def test_histories_of_every_length_are_legible(tmp_path: Path, days: int, unit: str) -> None:
    """One day or three years, 500 projects with names of any kind: bars have a width, words do not overlap."""
    (tmp_path / "page.html").write_text(report.report(invented(days), Style(now=0)))
    with browser() as seen:
        for width in (390, 1280):
            seen.open((tmp_path / "page.html").as_uri(), width)
            drawn = seen.value(CHARTS)
            assert [one["title"].rpartition(" ")[2] for one in drawn if one["title"] != "Written in all"] == [unit] * 4
            for one in drawn:
                assert not overlapping(one["xs"], 0) and not overlapping(one["ys"], 2)
                assert all(bar["right"] - bar["left"] > 1.5 for bar in one["bars"])
            assert "475 more" in seen.value("document.querySelector('tr.rest').textContent")
            assert silent_and_fits(seen)


def silent_and_fits(seen: Browser) -> bool:
    fits = seen.value("document.documentElement.scrollWidth <= innerWidth")
    quiet = seen.said == [] and [url for url in seen.fetched if not url.startswith(("file:", "data:"))] == []
    ran = seen.value("""(() => { const script = document.createElement('script'); script.textContent = 'window.ran = 1';
                        document.body.append(script); script.remove(); return window.ran === 1; })()""")
    seen.said.clear()  # the browser told of the script that it did not run
    return bool(fits and quiet and not ran)


def overlapping(boxes: list[list[float]], side: int) -> bool:
    """Whether any two words of an axis touch."""
    spans = sorted((box[side], box[side + 1]) for box in boxes)
    return any(second[0] < first[1] for first, second in pairwise(spans))


def invented(length: int) -> dict[str, Any]:
    names = ["/home/ana/" + "long-" * 40, "/home/ana/データ" * 8, HOSTILE, "/home/ana/\u202eevil", ""]
    each = {"sessions": 3, "threads": 1, "records": 9, "written_bytes": 10**6, "est_tokens": 10**5, "recalled": 2,
            "saved_bytes": 10**5, "kept_bytes": 10**5, "live_bytes": 10**6, "vault_bytes": 10**5}  # fmt: skip
    days = [{**each, "day": (date(2024, 2, 27) + timedelta(number)).isoformat(), "written_bytes": 10**6 + number % 9}
            for number in range(length)]  # fmt: skip
    projects = [{"project": names[number] if number < 5 else f"/p/{number}", **each} for number in range(500)]
    rows = [(day["day"], day["written_bytes"]) for day in days]
    sessions = [{"session_id": make_uuid("s"), "title": HOSTILE * 3, "project": names[0], **each, "days": rows,
                 "saved_days": rows[:1]}]  # fmt: skip
    totals = {**each, "projects": 500, "vault_logical_bytes": 10**6, "prunes": 1, "generations": 1}
    return {
        "made_at": "2026-12-01T15:53:00.000Z", "time_zone": "UTC", "totals": totals, "days": days, "projects": projects,
        "sessions": sessions, "prune": {}, "recall": {"recalls": 2, "sessions": 1, "threads": 1, "most": []},
        "threads": [{"thread": make_uuid("t"), "title": "x" * 200, "project": names[2], "turns": 12_345,
                     "est_tokens": 10**6, "first_ts": "2024-02-27T10:00:00.000Z"}],
    }  # fmt: skip


@given(st.dictionaries(st.dates(date(2001, 1, 1), date(2040, 1, 1)), st.integers(1, 10**9), min_size=1, max_size=30))
@settings(deadline=None)
def test_bars_hold_what_their_days_hold(days: dict[date, int]) -> None:
    """Whatever time it is: each day is in one bar, the bars follow each other, and there are not too many of them."""
    first, last = min(days), max(days)
    span = charts.Span.of(first.isoformat(), last.isoformat())
    begins = span.bars()
    series = charts.Series("one", "one", {day.isoformat(): number for day, number in days.items()})
    assert sum(charts._summed(series, span, begins)) == sum(days.values())
    assert begins == sorted(set(begins)) and begins[0] <= first and begins[-1] <= last and len(begins) <= 125
    assert len({span.label(begin) for begin in begins}) == len(begins)


@needs_browser
def test_a_browser_shows_an_exported_thread(home: Home) -> None:
    """Hostile text is shown as text, and nothing of it runs or is fetched."""
    found = json.loads(home.run("search", "quotes", "--all", "--json").stdout)["results"][0]["thread"]
    assert home.run("export", found, "-o", "thread.html").returncode == 0
    with browser() as seen:
        for width in (390, 1280):
            seen.open((home.path / "thread.html").as_uri(), width)
            assert HOSTILE in seen.value("document.querySelector('section.user pre').textContent")
            assert seen.value("document.querySelectorAll('section.turn[aria-labelledby] h2').length") == 4
            assert seen.value("document.querySelectorAll('details:not([open]) pre').length") == 1  # a long result
            assert silent_and_fits(seen)


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
