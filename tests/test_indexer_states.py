"""Whatever happens to the files and in whatever order it is seen, the Map equals a rebuild.

The long form (`make states`) raises FABLED_STATES.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from fabled.indexer import scan
from tests.build import Transcript, line, make_uuid
from tests.home import Home, differences, dump, rebuilt

EXAMPLES = int(os.environ.get("FABLED_STATES", "25"))
WORDS = ["plover", "godwit", "getUserName", "knot", "dunlin", "smew café", "外注 部署", "sand_piper.py"]
words = st.sampled_from(WORDS)
# Making a failing history small takes minutes: that is for the long form.
PHASES = tuple(Phase) if "FABLED_STATES" in os.environ else (Phase.explicit, Phase.reuse, Phase.generate)


class Files(RuleBasedStateMachine):
    """Appends, rewrites, renames, removals, forks, subagents, torn lines, generations, restarts, in any order."""

    names = Bundle("names")

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fabled-states-"))
        self.home = Home(self.folder)
        self.made: dict[str, Transcript] = {}
        self.partial: dict[str, bytes] = {}
        self.step = 0

    def teardown(self) -> None:
        if hasattr(self, "home"):
            self.home.index()
            self.home.indexer.derive_terms()
            found = differences(dump(self.home.map_db), rebuilt(self.home, self.folder))
            faults = self.home.faults()
            self.home.close()
            shutil.rmtree(self.folder)
            assert found == []
            assert faults == []

    def alive(self, name: str) -> bool:
        return name in self.made and (self.home.root / name).exists()

    @rule(
        target=names,
        number=st.integers(0, 3),
        new=st.booleans(),
        project=st.sampled_from(["-home-ana-app", "-home-ana-other"]),
    )
    def begin_session(self, number: int, new: bool, project: str) -> str:
        session = make_uuid(f"s{number}")
        name = f"{project}/{session}.jsonl"
        if name not in self.made:
            talk = Transcript(session=session, new_style=new, cwd="/home/ana/app", salt=project)
            talk.user("first words of " + WORDS[number])
            self.made[name] = talk
            self.home.write(name, talk.data)
        return name

    def grow(self, name: str, begin: int) -> None:
        talk = self.made[name]
        if not self.alive(name):
            return
        tail = b"".join(part + b"\n" for part in talk.lines[begin:])
        self.home.append(name, (self.partial.pop(name, b"") and b"\n" + tail) or tail)

    @rule(name=names, word=words, kind=st.integers(0, 9))
    def talk(self, name: str, word: str, kind: int) -> None:
        talk = self.made[name]
        begin = len(talk.lines)
        if kind <= 2:
            talk.user(f"please look at {word}")
        elif kind == 3:
            talk.assistant(f"the {word} is fine")
        elif kind == 4:
            call = talk.call("Read", {"file_path": f"/x/{word}"})
            talk.result(call, f"content of {word}")
        elif kind == 5:
            first = talk.call("Bash", {"command": word}, message="msg_par")
            second = talk.call("Bash", {"command": word + "2"}, message="msg_par")
            talk.result(first, "one")
            talk.result(second, "two")
        elif kind == 6:
            talk.queue(f"please look at {word}")
        elif kind == 7:
            talk.title(f"about {word}")
        elif kind == 8:
            talk.compact(f"summary of {word}")
        else:
            talk.user(f"<command-name>/{word}</command-name>")
            talk.add("user", message={"role": "user", "content": "<local-command-stdout>done</local-command-stdout>"})
        self.grow(name, begin)

    @rule(name=names, word=words, which=st.integers(0, 20))
    def rewind(self, name: str, word: str, which: int) -> None:
        talk = self.made[name]
        known = [r["uuid"] for r in talk.records if "uuid" in r]
        begin = len(talk.lines)
        talk.user(f"again, {word}", parent=known[which % len(known)])
        self.grow(name, begin)

    @rule(name=names, word=words, later=st.booleans())
    def dangling(self, name: str, word: str, later: bool) -> None:
        talk = self.made[name]
        begin = len(talk.lines)
        missing = make_uuid(f"missing {word} {later}")
        talk.assistant(f"an answer without parent, {word}", parent=missing)
        if later:
            talk.add(
                "user", uuid=missing, parent=None, message={"role": "user", "content": f"the parent comes later {word}"}
            )
        self.grow(name, begin)

    @rule(name=names, word=words)
    def odd_line(self, name: str, word: str) -> None:
        talk = self.made[name]
        begin = len(talk.lines)
        talk.raw(b'{"torn":"' + word.encode())
        talk.raw(b"\0\0\0" + talk.lines[0])
        talk.raw(b"not json at all")
        talk.raw(talk.lines[0] + talk.lines[-1])
        self.grow(name, begin)

    @rule(name=names, cut=st.integers(1, 60))
    def partial_line(self, name: str, cut: int) -> None:
        if self.alive(name) and name not in self.partial:
            part = self.made[name].lines[0][:-cut]
            self.home.append(name, part)
            self.partial[name] = part
            self.made[name].lines.append(part)

    @rule(name=names, cut=st.integers(0, 8), in_place=st.booleans(), edit=st.booleans())
    def rewrite(self, name: str, cut: int, in_place: bool, edit: bool) -> None:
        talk = self.made[name]
        self.partial.pop(name, None)
        talk.lines = talk.lines[: max(1, len(talk.lines) - cut)]
        talk.records = [
            r for r in talk.records if any(r.get("uuid", "?").encode() in part for part in talk.lines)
        ] or talk.records[:1]
        if edit:
            talk.lines = [part.replace(b"plover", b"curlew") for part in talk.lines]
        talk.last = next((r["uuid"] for r in reversed(talk.records) if "uuid" in r), None)
        if in_place and self.alive(name):
            self.home.overwrite(name, talk.data)
        else:
            self.home.write(name, talk.data)

    @rule(name=names)
    def remove(self, name: str) -> None:
        (self.home.root / name).unlink(missing_ok=True)
        self.partial.pop(name, None)

    @rule(name=names)
    def come_back(self, name: str) -> None:
        self.partial.pop(name, None)
        self.home.write(name, self.made[name].data)

    @rule(name=names)
    def rename_project(self, name: str) -> None:
        """The whole folder moves away and back under another name."""
        folder = self.home.root / name.split("/")[0]
        other = folder.with_name(folder.name + "-moved")
        if folder.exists() and not other.exists():
            folder.rename(other)
        elif other.exists() and not folder.exists():
            other.rename(folder)

    @rule(name=names, number=st.integers(0, 3), rewrite_prompts=st.booleans(), named=st.booleans(), word=words)
    def fork(self, name: str, number: int, rewrite_prompts: bool, named: bool, word: str) -> None:
        source = self.made[name]
        session = make_uuid(f"fork{number} of {source.session}")
        other = f"{name.split('/')[0]}/{session}.jsonl"
        if other in self.made:
            return
        talk = Transcript(session=session, new_style=source.new_style, salt=f"fork{number}", cwd=source.cwd)
        prompt = make_uuid(f"forked {number}")
        for record in source.records:
            copy: dict[str, Any] = {**record, "sessionId": session}
            if rewrite_prompts and "promptId" in copy:
                copy["promptId"] = prompt
            if named and "uuid" in copy:
                copy["forkedFrom"] = {"sessionId": source.session, "messageUuid": copy["uuid"]}
            talk.put(copy)
        talk.last = source.last
        talk.count = 500 + number * 50
        talk.user(f"the fork asks about {word}", prompt=prompt if rewrite_prompts else None)
        talk.assistant("the fork answers")
        self.made[other] = talk
        self.home.write(other, talk.data)

    @rule(name=names, number=st.integers(0, 2), word=words, how=st.integers(0, 4), nested=st.booleans())
    def subagent(self, name: str, number: int, word: str, how: int, nested: bool) -> None:
        talk = self.made[name]
        agent = f"a{number}f"
        path = f"{name[:-6]}/subagents/{'deep/' if nested else ''}agent-{agent}.jsonl"
        side = Transcript(session=talk.session, new_style=talk.new_style, sidechain=True, agent=agent, salt=str(number))
        begin = len(talk.lines)
        call = talk.call("Task", {"prompt": f"look for {word}", "description": "d"})
        first = side.user(f"look for {word}")
        side.assistant(f"found {word}")
        more: dict[str, Any] = {}
        if how == 1:
            more["toolUseResult"] = {"agentId": agent, "status": "completed"}
        if how == 2:
            first["sourceToolAssistantUUID"] = call["uuid"]
            side.lines[0] = line(first)
        if how == 3 and talk.prompt is not None:
            for at, record in enumerate(side.records):
                record["promptId"] = talk.prompt
                side.lines[at] = line(record)
        talk.result(call, "done", **more)
        if how == 4:
            meta = path[: -len(".jsonl")] + ".meta.json"
            self.home.write(
                meta, b'{"agentType":"Explore","toolUseId":"' + call["message"]["content"][0]["id"].encode() + b'"}'
            )
        self.home.write(path, side.data)
        self.grow(name, begin)

    @rule(name=names, number=st.integers(0, 2), keep=st.integers(1, 30))
    def generation(self, name: str, number: int, keep: int) -> None:
        if not self.alive(name):
            return
        project, file = name.split("/")
        path = self.home.vault_folder / project / file[:-6] / f"v{number}-{'raw' if number == 0 else 'pruned'}.jsonl"
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (self.home.root / name).read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:keep]))

    @rule(name=names, which=st.integers(0, 5), number=st.integers(0, 2), keep=st.integers(1, 3))
    def subagent_generation(self, name: str, which: int, number: int, keep: int) -> None:
        live = sorted((self.home.root / name[:-6] / "subagents").rglob("*.jsonl"))
        if not live:
            return
        one = live[which % len(live)]
        below = one.relative_to(self.home.root).with_suffix("")
        path = self.home.vault_folder / below / f"v{number}-raw.jsonl"
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        meta = one.with_suffix(".meta.json")
        if meta.exists():
            path.with_suffix(".meta.json").write_bytes(meta.read_bytes())
        path.write_bytes(b"".join(one.read_bytes().splitlines(keepends=True)[:keep]))

    @rule(number=st.integers(0, 2), name=names)
    def retire_generation(self, number: int, name: str) -> None:
        project, file = name.split("/")
        for path in (self.home.vault_folder / project / file[:-6]).glob(f"v{number}-*.jsonl"):
            path.unlink()

    @rule(names=st.lists(names, min_size=1, max_size=3))
    def see_some(self, names: list[str]) -> None:
        self.home.index(*names)

    @rule()
    def see_all(self) -> None:
        self.home.index()

    @rule()
    def derive_terms(self) -> None:
        self.home.indexer.derive_terms()

    @rule()
    def rest(self) -> None:
        self.home.indexer.idle()

    @rule()
    def restart(self) -> None:
        self.home.reopen()

    @invariant()
    def every_byte_accounted(self) -> None:
        self.step += 1


def test_any_order_of_changes_gives_the_map_of_a_rebuild(monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends, rewrites, renames, removals, forks, subagents and generations in any order: same Map as a rebuild."""
    monkeypatch.setattr(scan, "TWIN_BYTES", 0)  # these transcripts are small
    run_state_machine_as_test(
        Files,
        settings=settings(
            max_examples=EXAMPLES,
            phases=PHASES,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
