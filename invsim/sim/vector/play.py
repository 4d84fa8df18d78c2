"""Playing a program: each episode's tables looked up for all streams at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from invsim.sim.vector.decisions import ATTEMPTS, COMPLETED, STORED_SHIFT, Bools, Bytes, Codes, Drawn
from invsim.sim.vector.outcomes import Outcomes
from invsim.sim.vector.program import Change, Judgement, Program, Step


def play(program: Program, drawn: Drawn) -> Outcomes:
    """Return what becomes of the streams drawn."""
    out = Outcomes(
        first=drawn.first,
        count=drawn.count,
        certainty=program.certainty,
        most=program.slots,
        alerts=program.alerts,
    )
    player = _Player(program, drawn, out)
    for at, step in enumerate(program.steps):
        player.episode(at, step)
    player.judge(program.closing)
    return out


class _Player:
    """The streams under way: the code of each slot, and the size of each store."""

    def __init__(self, program: Program, drawn: Drawn, out: Outcomes) -> None:
        self.drawn, self.out = drawn, out
        self.nothing: Codes = np.zeros(drawn.count, dtype=np.intp)
        self.codes = [self.nothing] * program.slots
        self.size = np.zeros(drawn.count, dtype=out.entries.dtype)

    def episode(self, at: int, step: Step) -> None:
        """Play one episode."""
        self.judge(step.judgements)
        quiet = step.settling is None
        if quiet and step.drifted:
            self._check(step, None)
        if quiet and step.certain is not None:
            np.multiply(self.size, step.certain & ATTEMPTS, out=self.out.entries[at])
            if step.becomes is not None:
                self.codes[step.slot] = step.becomes.take(self._index(at, step))
                self.size += self.size.dtype.type(step.certain >> STORED_SHIFT)
            return
        index, row = self._index(at, step), self.out.row(at)
        if step.certain is None:
            step.outcome.take(index, out=row, mode="clip")
        if not quiet:
            self._eventful(at, step, index, row)
            return
        np.multiply(row & ATTEMPTS, self.size, out=self.out.entries[at])
        if step.becomes is not None:
            self.codes[step.slot] = step.becomes.take(index)
            self.size += row >> STORED_SHIFT

    def _index(self, at: int, step: Step) -> Codes:
        code, cells = self.codes[step.slot] if step.slot >= 0 else self.nothing, self.drawn.cells[at]
        if cells is None:
            return code
        index = cells.astype(np.intp)
        index += code
        return index

    def judge(self, judgements: Sequence[Judgement]) -> None:
        """Count the entries that drift makes wrong."""
        for each in judgements:
            code = self.codes[each.slot]
            self.out.add("required_by_row", each.by_row.take(code))
            self.out.add("required_by_table", each.by_table.take(code))

    # Episodes in which the store changes otherwise than by a new fix --------------------------------------------------

    def _eventful(self, at: int, step: Step, index: Codes, row: Bytes) -> None:
        attempts, entries = row & ATTEMPTS, self.out.entries[at]
        entries[:] = self.size  # the first attempt's
        last = max(len(step.comparisons), 1)
        for failures in range(1, last + 1):
            touched = self._response(at, step, index, failures)
            after_drift = failures == 1 and step.drifted
            if after_drift or touched is not None:
                self._check(step, None if after_drift else touched)
            if touched is not None:
                for event in step.rule_events:
                    alert = self.out.alerts[event]
                    self.out.alerts[event] = np.where((np.asarray(alert) < 0) & touched, at, alert)
            later = np.maximum(attempts, failures) - failures if failures == last else attempts > failures
            entries += self.size * later
        if step.slot >= 0:
            self._settle(step, index, row)

    def _response(self, at: int, step: Step, index: Codes, failures: int) -> Bools | None:
        """Change the store on a response, the so-many-th failed one in some streams; return where vectors did."""
        if failures == 1:
            for change in step.changes:
                self._apply(at, change, None)
        touched = None
        for comparison in step.comparisons[failures - 1] if step.comparisons else ():
            compared = self._apply(at, comparison.change, comparison.heard.take(index))
            touched = compared if touched is None else touched | compared
        return touched

    def _settle(self, step: Step, index: Codes, row: Bytes) -> None:
        assert step.settling is not None
        code, settling = self.codes[step.slot], step.settling
        stored = settling.stored.take(index)
        new = stored >= 0
        self.size += new & ~settling.holds.take(code)
        code = np.where(row & COMPLETED, settling.completed.take(code), code)
        self.codes[step.slot] = np.where(new, stored, code)

    def _apply(self, at: int, change: Change, heard: Bools | None) -> Bools:
        """Apply a change where it was heard, or everywhere; return where it evicted or restamped."""
        out, codes = self.out, [self.codes[part.slot] for part in change.parts]
        touched = np.zeros(out.count, dtype=np.bool_)
        gone = self._gone(change, codes, heard)
        for part, code, evicted in zip(change.parts, codes, gone, strict=True):
            if evicted is not None:
                touched |= evicted
                self.size -= evicted
                out.add_evicted(at, evicted)
                out.add("evicted_right_by_row", evicted & part.right_by_row.take(code))
                out.add("evicted_right_by_table", evicted & part.right_by_table.take(code))
        for operation in range(change.operations):
            any_restamped = np.zeros(out.count, dtype=np.bool_)
            for part, code, evicted in zip(change.parts, codes, gone, strict=True):
                table = part.restamped[operation]
                if table is not None:
                    restamped = _among(heard, table.take(code))
                    restamped &= True if evicted is None else ~evicted
                    any_restamped |= restamped
                    out.add_restamped(at, restamped)
            touched |= any_restamped
            out.add("restamp_operations", any_restamped)
        for part, code, evicted in zip(change.parts, codes, gone, strict=True):
            new = code if part.stays is None else part.stays.take(code)
            if evicted is not None:
                new = np.where(evicted, part.leaves.take(code), new)
            self.codes[part.slot] = new if heard is None else np.where(heard, new, code)
        return touched

    @staticmethod
    def _gone(change: Change, codes: Sequence[Codes], heard: Bools | None) -> list[Bools | None]:
        """Return which entries are evicted, those that others take along included."""
        gone: list[Bools | None] = [
            None if part.gone is None else _among(heard, part.gone.take(code))
            for part, code in zip(change.parts, codes, strict=True)
        ]
        spreads = bool(change.notices)
        while spreads:
            spreads = False
            for source, target, depends in change.notices:
                origin, taken = gone[source], gone[target]
                assert origin is not None
                assert taken is not None
                more = origin & depends.take(codes[target]) & ~taken
                if more.any():
                    taken |= more
                    spreads = True
        return gone

    def _check(self, step: Step, where: Bools | None) -> None:
        """Count entries that disagree with the server although their stamps are current."""
        for slot, table in step.contradicted:
            self.out.add("contract_failures", _among(where, table.take(self.codes[slot])))


def _among(some: Bools | None, flags: Bools) -> Bools:
    """Return the flags of some streams, of all if ``some`` is None."""
    return flags if some is None else flags & some
