"""Says which records a prune may really take out of the graph, and whom their children are to name as parent.

Which rule would take which record is left to `rules`. A client walks from the last record up by `parentUuid`; a parent
that is null or gone ends the walk and loses all before it, without a word. So a record stays where a kept one would be
left without ancestors, and where a child cannot be edited. All walks are loops, each record is passed once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from . import splice
from .lines import FIRM, FIXED, FULL, MOVABLE, OTHER, PROGRESS, PROMPT, SIDE, Fact, Survey
from .text import milliseconds

BRIDGED_MS = 6_000
"""A little more than the five seconds that clients were seen to bridge."""
_BRIDGES = 4
_ATTEMPTS = 6
"""So often what is kept may need more of what S3 would take, then S3 takes nothing: no transcript costs its square."""


@dataclass(slots=True)
class Fate:
    """What becomes of the records, by their positions in the survey's facts."""

    gone: dict[int, str]
    """position → the rule that takes it"""
    emptied: set[int] = field(default_factory=set)
    """progress records that stay, without their data"""
    parents: dict[int, tuple[str, str]] = field(default_factory=dict)
    """(the rule that took the parent, the uuid to name instead)"""
    spared: set[int] = field(default_factory=set)
    """records that a rule would take and that stay for others' sake"""


class Keeping:
    """The graph of one transcript, and what in it stays in place whatever the rules say."""

    def __init__(self, survey: Survey, starts: Collection[int], collapsing: bool) -> None:
        """`starts`: where the windows begin; a repetition on the other side of one is not the same to the rules.

        `collapsing`: whether S3 is to take what stands before the last compaction.
        """
        self.survey = survey
        self.facts = survey.facts
        where = survey.where
        self.before = survey.boundary if survey.boundary is not None else 0
        """the last compaction: S3 takes only what stands before it"""
        self.last = self._last()
        self.goes_on_above = self._goes_on_above()
        """then only progress records go: which child the request ends with depends on all others"""
        self.collapsing = collapsing and survey.boundary is not None and not self.goes_on_above
        self.gaps = self._gaps()
        open_ends = [at for at in self.gaps if at >= self.before or not self.collapsing]
        self.near = set(open_ends).union(*(self.gaps[at] for at in open_ends))
        self.repeated, self.doubled = self._repeats([*starts, self.before])
        begins = {*survey.named, survey.leaves.get("last-prompt")}
        self.pointed = {where[leaf] for leaf in survey.leaves.values() if leaf in where and leaf not in begins}
        """what titles point at: it stays, but no request begins there, as one may at the leaf of `last-prompt`"""
        self.named = {where[name] for name in (*survey.named, *survey.leaves.values()) if name in where}
        self.preserved, core, self.heads = self._preserved()
        self.sent = self.last | core | (self.named - self.pointed)
        if survey.naming is not None:
            self.sent.add(survey.naming)
        self.held = self.sent | self.preserved | self.pointed | self.doubled | self.near | set(starts)
        self.last_prompt = self._last_prompt()
        if self.last_prompt is not None:
            self.held.add(self.last_prompt)
        ends = self.last if self.collapsing else self.last | self.heads
        self.held |= {up for at in ends if (up := self.parent(at)) is not None}

    def parent(self, at: int) -> int | None:
        """The position of a record's parent, None where it names none or an unknown one."""
        name = self.facts[at].parent
        return self.survey.where.get(name) if name is not None else None

    def _last(self) -> set[int]:
        """The last record, and the last of the main chain, with and without progress: what a running client and the
        next resume go on from."""
        facts = self.facts
        if not facts:
            return set()
        backwards = range(len(facts) - 1, -1, -1)
        chain = next((at for at in backwards if self._linked(facts[at])), len(facts) - 1)
        main = (at for at in backwards if facts[at].kind == PROGRESS and not facts[at].flags & SIDE)
        return {len(facts) - 1, chain, max(chain, next(main, chain))}

    def _last_prompt(self) -> int | None:
        """The last real prompt: it stays, so that the thinking since then is known again."""
        again = {at for at, _ in self.survey.repeats}
        facts = self.facts
        return next((at for at in range(len(facts) - 1, -1, -1) if facts[at].flags & PROMPT and at not in again), None)

    def _across(self, taken: Mapping[int, str], held: Collection[int]) -> set[int]:
        """The records from before the last compaction that a kept one behind it hangs on.

        The client moves whatever hangs on one of them to the end of what is preserved, so one of them has to be there.
        """
        found: set[int] = set()
        passed: set[int] = set()
        for at in range(self.before, len(self.facts)):
            if (at in taken and at not in held) or at in self.repeated:
                continue
            up = self.parent(at)
            while up is not None and up not in passed:
                passed.add(up)
                if up < self.before and self.facts[up].kind != PROGRESS:
                    found.add(up)
                    break
                up = self.parent(up) if up in taken or self.facts[up].kind == PROGRESS else None
        return found

    def _goes_on_above(self) -> bool:
        """Whether the last record of the main chain has children further up, so that a request may end with those."""
        names = {self.facts[at].uuid for at in self.last if self._linked(self.facts[at])}
        for fact in self.facts:
            if fact.parent in names:
                if self._linked(fact):
                    return True
                if fact.kind == PROGRESS:
                    names.add(fact.uuid)
        return False

    @staticmethod
    def _linked(fact: Fact) -> bool:
        """Whether the client takes a record for a link of the main chain."""
        return not fact.flags & SIDE and fact.kind not in (OTHER, PROGRESS)

    def _gaps(self) -> dict[int, set[int]]:
        """Main-chain record whose parent is unknown → what the client may bridge the gap with.

        It takes the newest main-chain record that is up to five seconds older. A few candidates and the neighbour in
        the file are held, so that the choice stays what it was.
        """
        facts = self.facts
        found: dict[int, set[int]] = {}
        again = {at for at, same in self.survey.repeats if same}
        loose: set[int] = set()  # progress records that hang on an unknown one; they are no links themselves
        main: int | None = None
        for at, fact in enumerate(facts):
            up = self.parent(at)
            open_end = fact.parent is not None and (
                up is None or up in loose or (up >= at and facts[up].kind == PROGRESS)
            )
            if fact.kind == PROGRESS and open_end:
                loose.add(at)
            if not self._linked(fact) or at in again:
                continue
            if open_end:
                found[at] = {main} if main is not None else set()
            main = at
        if found:
            times = sorted(
                (when, at)
                for at, fact in enumerate(facts)
                if fact.written is not None and (when := milliseconds(fact.written)) is not None
            )
            for at, near in found.items():
                when = milliseconds(facts[at].written)
                if when is not None:
                    end = bisect_right(times, (when, len(facts)))
                    older = times[max(end - _BRIDGES, 0) : end]
                    newest = older[-1][0] if older else 0
                    first = bisect_left(times, (newest, -1))
                    older += times[first : min(first + _BRIDGES, end)]
                    near |= {other for then, other in older if when - then <= BRIDGED_MS and other != at}
        return found

    def _repeats(self, cuts: Collection[int]) -> tuple[dict[int, str], set[int]]:
        """(what G4 takes: later copies, all of the same bytes; all other records that share their uuid)."""
        where, facts = self.survey.where, self.facts
        copies: dict[int, list[int]] = {}
        odd: set[int] = set()
        for at, same in self.survey.repeats:
            first = where[facts[at].uuid]
            copies.setdefault(first, []).append(at)
            if not same or at in self.last or at in self.near or not facts[at].flags & FIRM:
                odd.add(first)
        repeated: dict[int, str] = {}
        doubled: set[int] = set()
        for first, later in copies.items():
            if first in odd or any(first < cut <= later[-1] for cut in cuts):
                doubled |= {first, *later}
            else:
                repeated.update(dict.fromkeys(later, "G4"))
        return repeated, doubled

    def _preserved(self) -> tuple[set[int], set[int], set[int]]:
        """What the last compaction keeps from before it: (all, what is sent of it, what of that hangs on nothing sent).

        All is whatever stands from its first to its last record. The client puts what it lists behind the summary only
        if it is complete; else there are no heads, and all ancestors are sent as well.
        """
        survey, where = self.survey, self.survey.where
        core = {where[name] for name in survey.preserved if name in where}
        span: set[int] = set()
        whole = survey.listed is not None and all(name in where for name in survey.listed)
        if survey.segment is not None:
            head, tail = (where.get(name) for name in survey.segment)
            if head is not None and tail is not None:
                span = set(range(head, tail + 1)) - self.repeated.keys()
                path = {tail}
                up = self.parent(tail)
                while head not in path and up is not None and up not in path:
                    path.add(up)
                    up = self.parent(up)
                if head in path:
                    core |= path
                    whole = whole or survey.listed is None
        if whole and survey.listed is not None:
            whole = all(self.facts[where[name]].kind not in (OTHER, PROGRESS) for name in survey.listed)
        heads = {at for at in core if at < self.before and self.parent(at) not in core} if whole else set()
        return core | span, core, heads

    def settle(self, goes: Mapping[int, str]) -> Fate:
        """What becomes of the records, given which of them the rules would take."""
        taken = {at: rule for at, rule in goes.items() if at not in self.repeated}
        fate = Fate(taken)
        held = self.held | self._backwards(taken)
        held |= self._across(taken, held)
        if self.collapsing:
            self._spare_needed(fate, held)
        for at in held:
            if taken.pop(at, None):
                fate.spared.add(at)
        for attempt in range(_ATTEMPTS + 1):
            if self.collapsing and attempt == _ATTEMPTS:
                self._spare_all(fate)
            spared = len(fate.spared)
            if self.collapsing:
                self._spare_pairs(fate)
            children = self._children(taken)
            self._spare_roots(children, fate)
            self._spare_parents(children, fate)
            if len(fate.spared) == spared:
                break
        nearest: dict[int, int] = {}
        for at in self._children(taken):
            up = self.parent(at)
            if up is not None:
                fate.parents[at] = (taken[up], self.facts[self._walk(up, taken, nearest)].uuid)
        whole = self.last | self.doubled | self.preserved | self.named
        fate.emptied = {at for at in fate.spared - whole if self.facts[at].kind == PROGRESS}
        fate.emptied = {at for at in fate.emptied if self.facts[at].flags & FULL}
        return fate

    def _spare_needed(self, fate: Fate, held: set[int]) -> None:
        """Takes from S3 what may be sent after all: the ancestors of every record that a request may begin or end with.

        A record behind the compaction may hang on one before it (a rewind), so its whole chain stays. The preserved
        heads end the walk: the client puts what they head behind the summary.
        """
        taken, before = fate.gone, self.before
        kept = (at for at in range(before, len(self.facts)) if at not in taken or at in held)
        waiting = [at for at in kept if at not in self.repeated]
        waiting += [at for at in self.sent if at < before]
        seen = set(waiting)
        while waiting:
            at = waiting.pop()
            if taken.get(at) == "S3":
                del taken[at]
                fate.spared.add(at)
            if at in self.heads or at == before:
                continue
            up = self.parent(at)
            needs = {up} if up is not None else set()
            if at in self.gaps and at not in self.preserved:
                held |= self.gaps[at] | {at}
                needs |= self.gaps[at]
            waiting += needs - seen
            seen |= needs

    @staticmethod
    def _spare_all(fate: Fate) -> None:
        """Gives S3 up: what is kept needs more and more of it."""
        collapsed = [at for at, rule in fate.gone.items() if rule == "S3"]
        for at in collapsed:
            del fate.gone[at]
        fate.spared.update(collapsed)

    def _spare_pairs(self, fate: Fate) -> None:
        """Takes from S3 the other half of every tool call that is kept, and the other parts of every message."""
        taken, facts = fate.gone, self.facts
        holders: dict[str, list[int]] = {}
        for at, rule in taken.items():
            if rule == "S3":
                for name in self._shared(at):
                    holders.setdefault(name, []).append(at)
        waiting = [name for name in self.survey.opaque_calls if name in holders]
        for at in range(len(facts)):
            if at not in taken and at not in self.repeated:
                waiting += self._shared(at)
        while waiting:
            for at in holders.pop(waiting.pop(), ()):
                if taken.pop(at, None):
                    fate.spared.add(at)
                    waiting += self._shared(at)

    def _shared(self, at: int) -> tuple[str, ...]:
        """The ids that a record has in common with those that are sent together with it."""
        fact = self.facts[at]
        return fact.tools if fact.message is None else (*fact.tools, fact.message)

    def _walk(self, at: int, taken: Mapping[int, str], known: dict[int, int]) -> int:
        """The nearest kept ancestor of a record that goes; where there is none, the topmost record that goes."""
        path: list[int] = []
        passed: set[int] = set()
        up: int | None = at
        found = at
        while up is not None and up in taken and up not in passed:
            if up in known:
                found = known[up]
                break
            path.append(up)
            passed.add(up)
            found = up
            up = self.parent(up)
        else:
            if up is not None and up not in taken:
                found = up
        for step in path:
            known[step] = found
        return found

    def _children(self, taken: Mapping[int, str]) -> list[int]:
        """The kept records whose parent goes, but for those that go on naming it."""
        return [
            at
            for at in range(len(self.facts))
            if at not in taken and at not in self.repeated and self.parent(at) in taken and not self._headed(at)
        ]

    def _headed(self, at: int) -> bool:
        """Whether a record is a preserved head that keeps naming a parent that is gone (I5)."""
        return self.collapsing and at in self.heads

    def _backwards(self, taken: Mapping[int, str]) -> set[int]:
        """Both ends of a link to a progress record further down: the client does not follow such a link upwards."""
        found: set[int] = set()
        for at in range(len(self.facts)):
            up = self.parent(at)
            if up is not None and up >= at and taken.get(up) == "G1":
                found |= {at, up}
        return found

    def _spare_roots(self, children: Collection[int], fate: Fate) -> None:
        """Keeps the topmost record of a chain that would leave a kept one without any ancestor."""
        known: dict[int, int] = {}
        for at in children:
            up = self.parent(at)
            if up is not None:
                top = self._walk(up, fate.gone, known)
                if fate.gone.pop(top, None):
                    fate.spared.add(top)

    def _spare_parents(self, children: Collection[int], fate: Fate) -> None:
        """Keeps the parent of a record that cannot name another one, or only in more bytes."""
        known: dict[int, int] = {}
        waiting = list(children)
        while waiting:
            at = waiting.pop()
            up = self.parent(at)
            if up is None or up not in fate.gone:
                continue
            fact = self.facts[at]
            name = self.facts[self._walk(up, fate.gone, known)].uuid
            if (
                fact.flags & FIXED
                or not fact.flags & MOVABLE
                or len(splice.text(name)) > len(splice.text(fact.parent or ""))
            ):
                del fate.gone[up]
                fate.spared.add(up)
                waiting.append(up)

    def usage(self) -> Fact | None:
        """The assistant record whose usage a resume goes by: the last one of the newest message with figures."""
        at: int | None = max((at for at in self.last if self._linked(self.facts[at])), default=None)
        passed: set[int] = set()
        usage = self.survey.usage
        while at is not None and at not in passed and at not in usage:
            passed.add(at)
            at = self.parent(at)
        if at is None or at not in usage:
            return None
        found = max(other for other, name in usage.items() if name == usage[at])
        fact = self.facts[found]
        fixed = found in self.doubled or found in self.repeated or fact.flags & FIXED or not fact.flags & FIRM
        return None if fixed else fact
