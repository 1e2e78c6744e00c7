"""`recent`, `overview` and `file` as people and programs meet them, with a daemon and without one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.build import Transcript, make_uuid
from tests.shell import Home, daemon, harbour


@pytest.fixture(params=["daemon", "no daemon"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """Two projects, one with an edit and an open question."""
    made = Home(tmp_path)
    made.write(harbour())
    other = Transcript(make_uuid("other"), cwd="/home/ana/shop")
    other.count = 50
    other.user("Rename the basket to cart")
    call = other.call("Edit", {"file_path": "/home/ana/shop/src/cart.py", "old_string": "basket", "new_string": "cart"})
    other.result(call, "The file has been updated.")
    other.assistant("It is a cart now. Shall I rename the table, too?")
    made.write(other, "-home-ana-shop")
    if request.param == "daemon":
        with daemon(made):
            yield made
    else:
        assert made.run("index").returncode == 0
        yield made


def test_recent_leads_to_the_thread(home: Home) -> None:
    """What was last, what it left open, what it changed, and the command that opens it."""
    done = home.run("recent")
    assert done.returncode == 0
    assert "shop: Rename the basket to cart" in done.stdout
    assert "asks: Shall I rename the table, too?" in done.stdout and "src/cart.py" in done.stdout
    (first, *_) = home.json("recent", "--all")["results"]  # type: ignore[misc]
    assert f"Open one:  fabled thread {first['thread'][:8]}" in done.stdout
    assert home.run("thread", first["thread"][:8]).returncode == 0
    assert "Why do bookings" in home.run("recent", "--project", "app").stdout
    plain = home.run("recent", "--plain", "--utc").stdout.splitlines()
    assert plain[0].split("\t")[0] == first["thread"] and len(plain) == 2
    none = home.run("recent", "--project", "nowhere")
    assert (none.returncode, none.stdout) == (
        1,
        "No threads.\nNo project nowhere is known.  Those that are:  fabled projects\n",
    )
    assert home.run("recent", "--all", "--project", "app").returncode == 2
    assert home.run("recent", "--since", "whenever").returncode == 2


def test_overview_names_every_project(home: Home) -> None:
    """Counts, open ends and the way on."""
    done = home.run("overview")
    assert done.returncode == 0
    assert done.stdout.startswith("2 projects, 2 sessions, 2 threads, 1 open end\n")
    assert "/home/ana/shop" in done.stdout and "asks: Shall I rename the table, too?" in done.stdout
    assert home.json("overview", "-n", "1")["total"] == 2
    assert home.run("overview", "--plain").stdout.splitlines()[0].startswith("/home/ana/shop\t1\t1\t")


def test_file_tells_every_change(home: Home) -> None:
    """By a path's end, as text, as a diff, as rows; a file nobody changed is said to be that."""
    done = home.run("file", "src/cart.py")
    assert done.returncode == 0
    assert "1 change, /home/ana/shop/src/cart.py" in done.stdout and "+1 -1" in done.stdout
    (row,) = home.json("file", "cart.py")["results"]  # type: ignore[misc]
    assert home.run("block", row["block"]).returncode == 0
    assert f"fabled thread {row['thread'][:8]} --around {row['uuid'][:8]}" in done.stdout
    assert home.run("thread", row["thread"][:8], "--around", row["uuid"][:8]).returncode == 0
    shown = home.run("file", "cart.py", "--diff").stdout
    assert "--- a/home/ana/shop/src/cart.py\n+++ b/home/ana/shop/src/cart.py" in shown
    assert "\n@@ -1 +1 @@\n-basket\n+cart\n" in shown
    assert "\tEdit\t/home/ana/shop/src/cart.py\t1\t1\tok\t" in home.run("file", "cart.py", "--plain").stdout
    none = home.run("file", "nothing.py")
    assert (none.returncode, none.stdout) == (1, "No change of nothing.py by a tool is known.\n")
