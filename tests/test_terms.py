"""Discovery terms as people ask for them: counted, narrowed down, as filters of a search, never behind the records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabled.answers import Reader, answer
from fabled.store.queries import Queries
from tests import home as homes
from tests.build import Transcript, make_uuid
from tests.shell import Home, daemon, harbour


@pytest.fixture(params=["daemon", "no daemon"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    home.write(harbour())
    other = Transcript(make_uuid("other"), cwd="/home/ana/shop")
    other.user("Rename the basket to cart in [[Shop rules]], see getBasket")
    other.call("Edit", {"file_path": "/home/ana/shop/src/cart.py", "old_string": "a", "new_string": "b"})
    other.call("Bash", {"command": "git commit -m 'basket'"})
    other.assistant("Done, the basket is a cart now.")
    home.write(other, "-home-ana-shop")
    if request.param == "daemon":
        with daemon(home):
            yield home
    else:
        assert home.run("index").returncode == 0
        yield home


def terms(home: Home, *arguments: str) -> dict[str, int]:
    value = home.json("terms", *arguments)
    assert value["pending"] == 0
    return {row["term"]: row["threads"] for row in value["terms"]}  # type: ignore[attr-defined]


def test_terms_are_listed_by_kind_prefix_project_and_thread(served: Home) -> None:
    """What was asked for is derived first, with a daemon or without one."""
    assert terms(served, "--kind", "operative") == {"sqlite3": 1, "git commit": 1}
    assert terms(served, "--kind", "wikilink") == {"Shop rules": 1}
    assert terms(served, "--project", "shop", "--kind", "target") == {"src/cart.py": 1, "getBasket": 1}
    assert terms(served, "BASK") == {"basket": 1}
    assert "git commit" in served.run("terms", "git").stdout
    thread = served.json("search", "basket", "--all")["results"][0]["thread"]  # type: ignore[index]
    own = served.json("terms", "--thread", str(thread))
    assert {"basket", "cart", "src/cart.py"} <= {row["term"] for row in own["terms"]}  # type: ignore[attr-defined]
    assert "commands" in served.run("terms", "--thread", str(thread)).stdout
    assert served.run("terms", "zzz").stdout.startswith("No term that begins with zzz.")
    assert served.run("terms", "--plain", "git").stdout.startswith("git commit\toperative\t1\t1\t")


def test_a_term_narrows_a_search_down(served: Home) -> None:
    """By `term:` or `--term`, in any case, a file by the end of its path."""
    terms(served)
    for term, many in (("git commit", 1), ("GETBASKET", 1), ("cart.py", 1), ("sqlite3", 0)):
        value = json.loads(served.run("search", "basket", "--all", "--term", term, "--json").stdout)
        assert value["total"] == many, term
    assert served.json("search", "basket term:cart.py", "--all")["total"] == 1


def test_a_search_tells_by_which_terms_it_may_be_narrowed_down(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for number in range(6):
        made = Transcript(make_uuid(f"s{number}"))
        made.user(f"kelp question {number} about {'migration' if number < 3 else 'rendering'}")
        made.call("Bash", {"command": "git rebase main" if number < 2 else "cargo build"})
        home.write(made)
    assert home.run("index").returncode == 0
    terms(home)
    facets = home.json("search", "kelp", "--all")["facets"]["terms"]  # type: ignore[index]
    found = {row["term"]: row["threads"] for row in facets}
    assert (found["migration"], found["rendering"], found["git rebase"]) == (3, 3, 2) and "kelp" not in found


def test_an_unchanged_thread_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only threads whose records changed are read: a session resolved as a whole costs no reading."""
    home = homes.Home(tmp_path)
    talk = Transcript()
    for number in range(5):
        talk.user(f"kelp {number}")
        talk.assistant(f"walrus {number}")
    home.write("-home-ana-app/s.jsonl", talk.data)
    home.index()
    assert home.indexer.derive_terms() == (5, 0)
    home.map.db.execute("INSERT INTO terms_due SELECT id FROM threads")
    read: list[str] = []
    monkeypatch.setattr(home.vault, "open", lambda path: read.append(path))
    assert home.indexer.derive_terms() == (5, 0) and read == []
    home.close()


def test_terms_wait_for_a_file_that_changed_and_for_threads_that_are_being_written(tmp_path: Path) -> None:
    """A rewritten file leaves its threads due until it is indexed again; unasked, only quiet threads are looked at."""
    home = homes.Home(tmp_path)
    talk = Transcript()
    talk.user("kelp")
    path = home.write("-home-ana-app/s.jsonl", talk.data)
    home.index()
    assert home.indexer.derive_terms(before_ts=0) == (0, 0) and home.indexer.terms_due() == 1
    path.write_bytes(path.read_bytes().replace(b"kelp", b"moss"))
    assert home.indexer.derive_terms() == (0, 1)
    home.index()
    assert home.indexer.derive_terms() == (1, 0)
    with_reader = Queries(str(home.map_db))
    rows = answer(Reader(with_reader, home.vault), "terms", {})["terms"]
    assert [row["term"] for row in rows] == ["moss"]
    with_reader.close()
    home.close()


def test_a_thread_that_is_gone_leaves_no_terms(tmp_path: Path) -> None:
    home = homes.Home(tmp_path)
    for name in ("a", "b"):
        talk = Transcript(session=make_uuid(name))
        talk.user(f"kelp{name}")
        home.write(f"-home-ana-app/{name}.jsonl", talk.data)
    home.index()
    home.indexer.derive_terms()
    (home.root / "-home-ana-app/a.jsonl").unlink()
    home.index()
    home.indexer.derive_terms()
    left = home.map.db.execute("SELECT count(DISTINCT thread) FROM terms").fetchone()[0]
    assert left == 1 and homes.differences(homes.dump(home.map_db), homes.rebuilt(home, tmp_path)) == []
    home.close()
