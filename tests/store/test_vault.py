"""The Vault finds every transcript and generation once, says what it could not see, and reads spans of any of them."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabled.store import vault as v
from fabled.store.vault import LIVE_RANK, Vault
from tests import packed
from tests.build import Transcript, make_uuid
from tests.rights import closed, unprivileged

P, S = "-home-ana-app", make_uuid("vault session")


def make(path: Path, data: bytes = b"{}\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "projects").mkdir()
    return tmp_path / "projects"


@pytest.fixture
def vault(tmp_path: Path, root: Path) -> Vault:
    return Vault(str(tmp_path / "vault"), [str(root)])


def found(vault: Vault) -> list[str]:
    """Paths found, as seen from the folder all places lie in."""
    base = os.path.commonpath([*vault.vaults, *vault.roots])
    return sorted(os.path.relpath(path, base) for path in vault.listing().found)


# What a path is


LIVE: list[tuple[str, str | None, str | None]] = [
    # path below the root, session, subagent
    (f"{P}/{S}.jsonl", S, None),
    (f"{P}/a session that is no uuid.jsonl", "a session that is no uuid", None),
    (f"{P}/agent-1a2b3c4d.jsonl", None, "1a2b3c4d"),
    (f"{P}/agent-acompact-0123456789abcdef.jsonl", None, "acompact-0123456789abcdef"),
    (f"{P}/{S}/subagents/agent-a0123456789abcdef.jsonl", S, "a0123456789abcdef"),
    (f"{P}/{S}/subagents/agent-aside_question-01.jsonl", S, "aside_question-01"),
    (f"{P}/{S}/subagents/nested/agent-deep.jsonl", S, "deep"),
    (f"{P}/{S}/subagents/workflows/wf_1/agent-w.jsonl", S, "w"),
    (f"{P}/{S}/subagents/workflows/wf_1/journal.jsonl", S, "journal"),
    (f"{P}/deeper/{S}.jsonl", S, None),
    (f"{S}.jsonl", S, None),
]
STORED: list[tuple[str, str, str | None, str, int]] = [
    # path below the vault, session, subagent, generation, rank
    (f"{P}/{S}/v0-raw.jsonl", S, None, "v0-raw", 0),
    (f"{P}/{S}/v0-raw.jsonl.zst", S, None, "v0-raw", 0),
    (f"{P}/{S}/v12-pruned.jsonl.zst", S, None, "v12-pruned", 12),
    (f"{P}/{S}/v007-raw.jsonl", S, None, "v7-raw", 7),
    (f"{P}/{S}/subagents/agent-a01/v3-raw.jsonl.zst", S, "a01", "v3-raw", 3),
    (f"{P}/{S}/subagents/agent-a01/v3-raw.jsonl", S, "a01", "v3-raw", 3),
    (f"{P}/{S}/subagents/workflows/wf_1/agent-w/v0-raw.jsonl.zst", S, "w", "v0-raw", 0),
    (f"{P}/{S}/subagents/agent-a/subagents/agent-b/v0-raw.jsonl.zst", S, "b", "v0-raw", 0),
]
NOTHING_LIVE = [
    f"{P}/{S}.jsonl.bak",
    f"{P}/{S}.json",
    f"{P}/{S}/subagents/agent-a.meta.json",
    f"{P}/{S}/tool-results/toolu_1.txt",
    f"{P}/{S}/tool-results/hook.jsonl",
    f"{P}/{S}/custom-title.json",
    f"{P}/{S}.jsonl.zst",
    "history.json",
]
NOTHING_STORED = [
    f"{P}/{S}/v0-raw.jsonl.tmp",
    f"{P}/{S}/v-raw.jsonl",
    f"{P}/{S}/v0-other.jsonl",
    f"{P}/v0-raw.jsonl",
    f"{P}/{S}/x/v0-raw.jsonl",
    f"{P}/{S}/v0-raw.jsonl.gz",
    f"{P}/{S}/tool-results/v0-raw.jsonl",
    f"{P}/{S}/tool-results/toolu_1.txt/v0-raw.zst",
    f"{P}/{S}/subagents/v0-raw.jsonl.zst",
    f"{P}/{S}/subagents/agent-a/v0-raw.meta.json",
    f"{P}/{S}/.fabled-12-0123456789abcdef.tmp",
    f"{P}/{S}/notes.jsonl",
    "v0-raw.jsonl",
]


@pytest.mark.parametrize(("path", "session", "agent"), LIVE)
def test_a_live_transcript_is_known_by_where_it_lies(
    path: str, session: str | None, agent: str | None, root: Path, vault: Vault
) -> None:
    """Sessions, subagents beside them (2.0.x) and below them, at any depth, are told apart by their paths."""
    place = vault.place(str(root / path))
    folder = P if "/" in path else ""
    meta = str(root / path).removesuffix(".jsonl") + ".meta.json" if agent else None
    assert place == v.Place(str(root / path), folder, session, agent, None, LIVE_RANK, meta)


@pytest.mark.parametrize(("path", "session", "agent", "generation", "rank"), STORED)
def test_a_generation_is_known_by_where_it_lies(
    path: str, session: str, agent: str | None, generation: str, rank: int, tmp_path: Path, vault: Vault
) -> None:
    """A generation's session, subagent, number and kind are in its path; it ranks before the live transcript."""
    real = str(tmp_path / "vault" / path)
    meta = f"{os.path.dirname(real)}/{generation}.meta.json" if agent else None
    assert vault.place(real) == v.Place(real, P, session, agent, generation, rank, meta)
    assert rank < LIVE_RANK


@pytest.mark.parametrize("path", NOTHING_LIVE)
def test_other_files_of_the_client_are_no_transcripts(path: str, root: Path, vault: Vault) -> None:
    """Descriptions, tool results, backups and other formats are not taken for transcripts."""
    make(root / path)
    assert vault.place(str(root / path)) is None
    assert found(vault) == []


@pytest.mark.parametrize("path", NOTHING_STORED)
def test_other_files_in_the_vault_are_no_generations(path: str, tmp_path: Path, vault: Vault) -> None:
    """Half-made and foreign files in the Vault are not taken for generations."""
    make(tmp_path / "vault" / path)
    assert vault.place(str(tmp_path / "vault" / path)) is None
    assert found(vault) == []


def test_a_path_outside_is_nothing(tmp_path: Path, vault: Vault) -> None:
    """What lies below no root and no vault is no transcript, be it named like one."""
    assert vault.place(str(make(tmp_path / "elsewhere" / f"{S}.jsonl"))) is None
    assert vault.place(str(tmp_path / "projects-other" / f"{S}.jsonl")) is None
    assert vault.below(str(tmp_path / "elsewhere")).found == {}


def test_everything_is_listed_with_its_stamp(tmp_path: Path, root: Path, vault: Vault) -> None:
    """One listing has all transcripts and generations, each as its path says, with the stamp of the file."""
    for path, *_ in LIVE:
        make(root / path)
    for path, *_ in STORED:
        make(tmp_path / "vault" / path)
    for path in NOTHING_LIVE:
        make(root / path)
    listing = vault.listing()
    assert found(vault) == sorted([f"projects/{path}" for path, *_ in LIVE] + [f"vault/{path}" for path, *_ in STORED])
    assert all(listing.found[path] == (vault.place(path), v.stamp_of(os.stat(path))) for path in listing.found)
    assert (listing.missing, listing.empty, listing.dangling, listing.failed) == ([], [], [], [])


def test_several_roots_are_listed_and_none_twice(tmp_path: Path) -> None:
    """Roots may lie inside one another or be named twice; each transcript is found once, by the nearest root."""
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    make(outer / P / "a.jsonl")
    make(inner / "-p" / "b.jsonl")
    vault = Vault([], [str(outer), str(inner), str(outer) + "/"])
    listing = vault.listing()
    assert sorted(place.folder for place, _ in listing.found.values()) == [P, "-p"]
    assert vault.roots == (str(outer), str(inner))


# Links


def test_a_linked_folder_is_followed_once(tmp_path: Path, root: Path, vault: Vault) -> None:
    """A project folder that is a link to another disk is read, and named by the link; two links to it are one."""
    make(tmp_path / "disk" / "app" / f"{S}.jsonl")
    (root / P).symlink_to(tmp_path / "disk" / "app")
    (root / "-home-ana-zz").symlink_to(tmp_path / "disk" / "app")
    ((place, _),) = vault.listing().found.values()
    assert (place.path, place.folder, place.session) == (str(tmp_path / "disk/app" / f"{S}.jsonl"), P, S)
    assert vault.place(str(root / P / f"{S}.jsonl")) == place
    assert [one for one, _ in vault.below(str(root / P)).found.values()] == [place]


def test_a_link_within_a_root_names_what_lies_there(root: Path, vault: Vault) -> None:
    """A link to what is found anyway changes nothing: the transcript keeps the folder it lies in."""
    make(root / "-z-real" / f"{S}.jsonl")
    (root / "-a-link").symlink_to(root / "-z-real")
    (root / "-m").mkdir()
    (root / "-m" / "other-name.jsonl").symlink_to(root / "-z-real" / f"{S}.jsonl")
    ((place, _),) = vault.listing().found.values()
    assert (place.folder, place.session) == ("-z-real", S)
    for way in ("-a-link", "-z-real"):
        assert vault.place(str(root / way / f"{S}.jsonl")) == place
        assert list(vault.below(str(root / way)).found) == [place.path]
    assert vault.place(str(root / "-m" / "other-name.jsonl")) == place


def test_a_linked_file_is_found_at_its_real_place(tmp_path: Path, root: Path, vault: Vault) -> None:
    """A transcript that is a link is keyed by its real path and named by the link."""
    real = make(tmp_path / "disk" / "x.dat")
    (root / P).mkdir()
    (root / P / f"{S}.jsonl").symlink_to(real)
    ((place, stamp),) = vault.listing().found.values()
    assert (place.path, place.session, stamp.size) == (str(real), S, 3)


@pytest.mark.parametrize("to", ["..", ".", "../..", "../../..", "/"])
def test_loops_of_links_end(to: str, root: Path, vault: Vault) -> None:
    """A link to a folder above, however far, is neither followed for ever nor out of the root."""
    make(root / P / f"{S}.jsonl")
    (root / P / "loop").symlink_to(to)
    (root / P / "self").symlink_to("self")
    assert found(vault) == [f"projects/{P}/{S}.jsonl"]


def test_loops_beyond_a_link_end(tmp_path: Path, root: Path, vault: Vault) -> None:
    """Folders outside that link to each other and back into the root are walked once."""
    make(tmp_path / "disk" / "a" / "one.jsonl")
    make(tmp_path / "disk" / "b" / "two.jsonl")
    make(root / P / "three.jsonl")
    (tmp_path / "disk" / "a" / "to-b").symlink_to(tmp_path / "disk" / "b")
    (tmp_path / "disk" / "b" / "to-a").symlink_to(tmp_path / "disk" / "a")
    (tmp_path / "disk" / "b" / "home").symlink_to(root)
    (root / "-linked").symlink_to(tmp_path / "disk" / "a")
    assert found(vault) == ["disk/a/one.jsonl", "disk/b/two.jsonl", f"projects/{P}/three.jsonl"] or sorted(
        place.session or "" for place, _ in vault.listing().found.values()
    ) == ["one", "three", "two"]


def test_links_that_lead_nowhere_are_told(tmp_path: Path, root: Path, vault: Vault) -> None:
    """A dangling link, or one to an empty folder, looks like a disk that is away: the listing says so."""
    make(root / P / "a.jsonl")
    (root / "-gone").symlink_to(tmp_path / "not there")
    (root / P / "b.jsonl").symlink_to(tmp_path / "not there either")
    (tmp_path / "bare").mkdir()
    (root / "-bare").symlink_to(tmp_path / "bare")
    listing = vault.listing()
    assert sorted(listing.dangling) == [str(root / "-gone"), str(root / P / "b.jsonl")]
    assert listing.empty == [str(tmp_path / "bare")]
    assert len(listing.found) == 1


# What cannot be seen


def test_missing_and_empty_roots_are_told(tmp_path: Path, root: Path) -> None:
    """A root that is not there, is a file, or holds nothing at all is named; a vault that is not there is no news."""
    make(tmp_path / "a file")
    vault = Vault(str(tmp_path / "no vault"), [str(root), str(tmp_path / "not there"), str(tmp_path / "a file")])
    listing = vault.listing()
    assert (listing.missing, listing.empty, listing.failed) == (
        [str(tmp_path / "not there"), str(tmp_path / "a file")],
        [str(root)],
        [],
    )


def test_a_closed_folder_is_told_and_the_rest_is_read() -> None:
    """A folder without permission is reported with its reason; nothing is raised, the others are listed."""
    with unprivileged() as folder:
        vault = Vault([], [str(folder / "projects"), str(folder / "shut")])
        make(folder / "projects" / "-closed" / "a.jsonl")
        make(folder / "projects" / "-open" / "b.jsonl")
        make(folder / "shut" / "-p" / "c.jsonl")
        with closed(folder / "projects" / "-closed"), closed(folder / "shut"):
            listing = vault.listing()
        assert [place.folder for place, _ in listing.found.values()] == ["-open"]
        assert sorted(listing.failed) == [
            (str(folder / "projects" / "-closed"), "Permission denied"),
            (str(folder / "shut"), "Permission denied"),
        ]


def test_what_is_no_regular_file_is_left_alone(root: Path, vault: Vault) -> None:
    """Pipes, sockets and folders named like transcripts are not read, and do not stop anything."""
    make(root / P / "a.jsonl")
    os.mkfifo(root / P / "pipe.jsonl")
    make(root / P / "folder.jsonl" / "inner.jsonl")
    assert found(vault) == [f"projects/{P}/a.jsonl", f"projects/{P}/folder.jsonl/inner.jsonl"]
    for name in ("pipe.jsonl", "folder.jsonl", "none.jsonl"):
        with pytest.raises(OSError):
            vault.read(str(root / P / name), 0, 1)


def test_a_name_that_is_no_text_is_told(root: Path, vault: Vault) -> None:
    """A transcript or folder whose name is no UTF-8 is reported, not raised, and the others are read."""
    folder = os.fsencode(root) + b"/-p"
    os.makedirs(folder + b"/sub\xff")
    for name in (b"/caf\xe9.jsonl", b"/other\xe9.txt", "/größe \n.jsonl".encode()):
        with open(folder + name, "wb") as file:
            file.write(b"{}\n")
    listing = vault.listing()
    assert [place.session for place, _ in listing.found.values()] == ["größe \n"]
    assert sorted(path for path, _ in listing.failed) == [f"{root}/-p/caf\\xe9.jsonl", f"{root}/-p/sub\\xff"]
    assert vault.place(os.fsdecode(folder + b"/caf\xe9.jsonl")) is None


def test_what_vanishes_while_it_is_listed_is_no_fault(
    root: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that goes away between being seen and being read is passed over."""
    make(root / "-p" / "a.jsonl")
    make(root / "-q" / "b.jsonl")
    plain: Callable[..., os.stat_result] = os.stat

    def stat(path: str, **more: bool) -> os.stat_result:
        if str(path).endswith("-p") and os.path.lexists(path):
            (root / "-p" / "a.jsonl").unlink()
            (root / "-p").rmdir()
        return plain(path, **more)

    monkeypatch.setattr(v.os, "stat", stat)
    listing = vault.listing()
    assert [place.folder for place, _ in listing.found.values()] == ["-q"]
    assert listing.failed == []


# Reading


def story(size: int) -> bytes:
    """A transcript of about that many bytes."""
    talk = Transcript(session=S)
    talk.user("go")
    while sum(map(len, talk.lines)) < size:
        talk.assistant(f"step {talk.count} größe 外 🙏 " + "word " * (talk.count % 50))
    return talk.data


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "seekable": packed.seekable,
    "seekable with checksums": lambda data: packed.seekable(data, checksums=True),
    "seekable, one frame": lambda data: packed.seekable(data, 1 << 30),
    "seekable, tiny frames": lambda data: packed.seekable(data, 100),
    "several frames": packed.several,
    "one frame": packed.single,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_packed_generation_reads_like_the_plain_one(form: str, tmp_path: Path, vault: Vault) -> None:
    """Spans of a compressed generation count plain bytes, whatever its frames and with or without a table."""
    data = story(30_000)
    plain = make(tmp_path / "vault" / P / S / "v0-raw.jsonl", data)
    path = make(tmp_path / "vault" / P / S / "v1-raw.jsonl.zst", FORMS[form](data))
    assert list(vault.spans(str(path))) == list(vault.spans(str(plain)))
    source = vault.open(str(path))
    assert source.size == len(data)
    assert source.sha256(100, 9_000) == v.sha256(data[100:9_100]).digest()
    assert source.read(len(data) - 5, 100) == data[-5:]
    assert source.read(len(data) + 5, 100) == b""
    source.close()
    with pytest.raises(EOFError):
        vault.read(str(path), len(data) - 5, 6)


DATA = story(20_000)
PACKED = {form: make_packed(DATA) for form, make_packed in FORMS.items()}


@given(st.sampled_from(sorted(FORMS)), st.integers(0, len(DATA)), st.integers(0, 9_000))
@settings(max_examples=150, deadline=None)
def test_any_span_of_a_packed_generation_is_exact(form: str, offset: int, length: int) -> None:
    """Any stretch of any packed form is that stretch of the plain bytes."""
    with unprivileged() as folder:
        path = make(folder / "v0-raw.jsonl.zst", PACKED[form])
        source = Vault([], []).open(str(path))
        assert source.read(offset, length) == DATA[offset : offset + length]
        assert source.read(offset // 2, length) == DATA[offset // 2 : offset // 2 + length]
        source.close()


DAMAGED: dict[str, bytes] = {
    "no zstd": b"not compressed at all, but long enough for a table",
    "a cut single frame": PACKED["one frame"][:-200],
    "cut within the frames": PACKED["several frames"][:-200],
    "the table cut off within a frame": PACKED["seekable"][: -len(PACKED["seekable"]) // 2],
    "one frame overwritten": PACKED["seekable"][:3_000] + b"\xff" * 300 + PACKED["seekable"][3_300:],
    "a table that lies about plain lengths": PACKED["seekable"][:-13] + struct.pack("<I", 5) + PACKED["seekable"][-9:],
    "a header only": PACKED["one frame"][:6],
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_generation_says_so(how: str, tmp_path: Path, vault: Vault) -> None:
    """Truncated, overwritten or foreign bytes raise OSError with a reason, never wrong bytes and nothing else."""
    path = make(tmp_path / "vault" / P / S / "v0-raw.jsonl.zst", DAMAGED[how])
    with pytest.raises(OSError) as fault:
        for offset in range(0, len(DATA), 1_000):
            assert vault.read(str(path), offset, 1_000) == DATA[offset : offset + 1_000]
    assert fault.value.strerror


def test_a_table_that_was_cut_off_is_not_missed(tmp_path: Path, vault: Vault) -> None:
    """Without its table, or with a broken one, a generation is read by its frames."""
    whole = PACKED["seekable"]
    table = struct.unpack("<I", whole[-9:-5])[0] * 8 + 9 + 8
    for data in (whole[:-table], whole[:-9] + b"\0" * 9, whole[:-17] + struct.pack("<I", 5) + whole[-13:]):
        path = make(tmp_path / "vault" / P / S / f"v{len(data)}-raw.jsonl.zst", data)
        assert vault.read(str(path), 5_000, 7_000) == DATA[5_000:12_000]


def test_a_generation_replaced_under_its_name_is_read_anew(tmp_path: Path, vault: Vault) -> None:
    """What was remembered of one file's frames is not used for another of the same name."""
    path = make(tmp_path / "vault" / P / S / "v0-raw.jsonl.zst", packed.seekable(b"a" * 9_000, 1_000))
    assert vault.read(str(path), 4_000, 4) == b"aaaa"
    path.unlink()
    make(path, packed.seekable(b"b" * 9_000, 1_000))
    assert vault.read(str(path), 4_000, 4) == b"bbbb"


def test_an_empty_generation_has_no_bytes(tmp_path: Path, vault: Vault) -> None:
    """Nothing packed is nothing read."""
    for name, data in (("v0-raw.jsonl.zst", packed.single(b"")), ("v1-raw.jsonl.zst", b""), ("v2-raw.jsonl", b"")):
        path = make(tmp_path / "vault" / P / S / name, data)
        assert list(vault.spans(str(path))) == []
