"""The stopping rule, look by look."""

import math

import numpy as np
import pytest
import scipy.stats

from invsim.errors import InputError, UnknownNameError
from invsim.stats.moments import UNDEFINED, Estimate
from invsim.stats.sequential import Decision, Reason, Stopping, Target


def looks(rule: Stopping, estimates: list[dict[str, Estimate]]) -> list[Decision]:
    decisions = []
    for each in estimates:
        decisions.append(rule.update(each))
        rule = decisions[-1].rule
    return decisions


def wide(n: int) -> Estimate:
    return Estimate(1.0, 5.0, n)


def narrow(n: int) -> Estimate:
    return Estimate(1.0, 0.001, n)


def test_it_stops_when_the_target_has_held_for_five_more_looks() -> None:
    rule = Stopping({"x": Target(absolute=0.1)}, budget=1_000)
    decisions = looks(rule, [{"x": wide(20)}, *({"x": narrow(20 + k)} for k in range(1, 7))])
    assert [each.stop for each in decisions] == [False] * 6 + [True]
    assert [each.rule.held for each in decisions] == [0, 1, 2, 3, 4, 5, 6]
    assert decisions[-1].reason is Reason.PRECISE
    assert decisions[-1].n == 26


def test_a_lapse_starts_the_looks_anew() -> None:
    rule = Stopping({"x": Target(absolute=0.1)}, budget=1_000, look_ahead=2)
    script = [narrow, narrow, wide, narrow, narrow, narrow]
    decisions = looks(rule, [{"x": make(20 + at)} for at, make in enumerate(script)])
    assert [each.rule.held for each in decisions] == [1, 2, 0, 1, 2, 3]
    assert [each.reason for each in decisions[-2:]] == [Reason.CONTINUE, Reason.PRECISE]


def test_all_metrics_must_hold_at_once() -> None:
    rule = Stopping({"x": Target(absolute=0.1), "y": Target(absolute=0.1)}, budget=1_000, look_ahead=0)
    first, second = looks(rule, [{"x": narrow(20), "y": wide(20)}, {"x": wide(21), "y": narrow(21)}])
    assert (first.pending, second.pending) == (("y",), ("x",))
    assert not second.stop
    assert second.rule.update({"x": narrow(22), "y": narrow(22), "z": wide(22)}).reason is Reason.PRECISE


def test_the_budget_stops_it() -> None:
    rule = Stopping({"x": Target(absolute=0.1)}, budget=30)
    decisions = looks(rule, [{"x": wide(20)}, {"x": wide(30)}])
    assert [(each.stop, each.reason) for each in decisions] == [(False, Reason.CONTINUE), (True, Reason.BUDGET)]
    assert decisions[-1].pending == ("x",)


def test_the_half_width_is_that_of_student() -> None:
    rule = Stopping({"x": Target(absolute=0.1), "y": Target(absolute=0.1, span=1.0)}, budget=30, confidence=0.9)
    found = rule.update({"x": Estimate(1.0, 0.3, 12), "y": Estimate(1.0, 0.3, 12)}).half_widths
    t = scipy.stats.t.ppf(0.95, 11)
    assert found["x"] == pytest.approx(t * 0.3)
    assert found["y"] == pytest.approx(t * math.sqrt(0.3**2 + 2 / 12**2))


def test_simultaneous_half_widths_share_the_error() -> None:
    targets = {"x": Target(absolute=0.1), "y": Target(absolute=0.1)}
    found = Stopping(targets, budget=30, simultaneous=True).update({"x": wide(12), "y": wide(12)}).half_widths
    assert found["x"] == pytest.approx(5 * scipy.stats.t.ppf(1 - 0.05 / 4, 11))


@pytest.mark.parametrize(
    ("target", "value", "precise"),
    [
        (Target(absolute=0.3), 0.0, True),
        (Target(absolute=0.2), 0.0, False),
        (Target(relative=0.1), 3.0, True),
        (Target(relative=0.1), -3.0, True),
        (Target(relative=0.1), 2.0, False),
        (Target(relative=0.1), 0.0, False),
        (Target(absolute=0.3, relative=0.1), 0.0, True),
        (Target(absolute=0.2, relative=0.1), 3.0, True),
    ],
)
def test_precision_is_absolute_or_relative(target: Target, value: float, precise: bool) -> None:
    se = 0.25 / scipy.stats.t.ppf(0.975, 19)
    decision = Stopping({"x": target}, budget=100).update({"x": Estimate(value, se, 20)})
    assert decision.half_widths["x"] == pytest.approx(0.25)
    assert decision.pending == (() if precise else ("x",))


def test_equal_streams_are_certain_only_where_they_cannot_vary() -> None:
    equal = {"x": Estimate(1.0, 0.0, 20)}
    assert not Stopping({"x": Target(absolute=0.05)}, budget=100).update(equal).pending
    assert Stopping({"x": Target(absolute=0.05, span=1.0)}, budget=100).update(equal).pending
    assert Stopping({"x": Target(absolute=0.05)}, budget=100, minimum=21).update(equal).pending


def test_an_undefined_metric_is_named_and_not_waited_for() -> None:
    rule = Stopping({"x": Target(absolute=0.1), "y": Target(absolute=0.1)}, budget=1_000, look_ahead=0)
    decision = rule.update({"x": narrow(20), "y": UNDEFINED})
    assert (decision.undefined, decision.reason) == (("y",), Reason.PRECISE)
    nothing = rule.update({"x": UNDEFINED, "y": UNDEFINED})
    assert (nothing.reason, nothing.n) == (Reason.CONTINUE, 0)
    single = rule.update({"x": Estimate(1.0, None, 1), "y": narrow(20)})
    assert single.pending == ("x",)


def test_it_says_how_many_streams_it_expects() -> None:
    rule = Stopping({"x": Target(absolute=0.1)}, budget=10_000)
    half = 0.3
    estimate = Estimate(1.0, half / scipy.stats.t.ppf(0.975, 99), 100)
    assert rule.update({"x": estimate}).expected in (900, 901)
    assert rule.update({"x": narrow(100)}).expected == 100
    assert Stopping({"x": Target(relative=0.1)}, budget=700).update({"x": Estimate(0.0, 1.0, 9)}).expected == 700


def test_a_rule_never_changes() -> None:
    rule = Stopping({"x": Target(absolute=0.1)}, budget=1_000, look_ahead=0)
    assert rule.update({"x": narrow(20)}) == rule.update({"x": narrow(20)})
    assert rule.held == 0


def test_it_stops_where_a_loop_over_the_data_would() -> None:
    values = np.random.default_rng(5).normal(size=400)
    halves = [scipy.stats.t.ppf(0.975, n - 1) * values[:n].std(ddof=1) / math.sqrt(n) for n in range(10, 401)]
    good = np.array(halves) <= 0.2
    expected = next(at for at in range(5, len(good)) if good[at - 5 : at + 1].all()) + 10
    rule, n = Stopping({"x": Target(absolute=0.2)}, budget=400), 9
    decision = None
    while decision is None or not decision.stop:
        n += 1
        estimate = Estimate(float(values[:n].mean()), float(values[:n].std(ddof=1) / math.sqrt(n)), n)
        decision = rule.update({"x": estimate})
        rule = decision.rule
    assert (n, decision.reason) == (expected, Reason.PRECISE)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (Target, "a target needs an absolute or a relative half-width"),
        (lambda: Target(absolute=0.0), "a target half-width must be above 0 (got 0.0)"),
        (lambda: Target(absolute=1.0, relative=-0.1), "a target half-width must be above 0 (got -0.1)"),
        (lambda: Target(absolute=1.0, span=-1.0), "span must be 0 or more (got -1.0)"),
        (lambda: Stopping({}, budget=3), "a stopping rule needs a target"),
        (lambda: Stopping({"x": Target(absolute=1)}, budget=0), "budget must be 1 or more (got 0)"),
        (lambda: Stopping({"x": Target(absolute=1)}, budget=9, look_ahead=-1), "look_ahead must be 0 or more (got -1)"),
        (lambda: Stopping({"x": Target(absolute=1)}, budget=9, minimum=2), "minimum must be 3 or more (got 2)"),
        (lambda: Stopping({"x": Target(absolute=1)}, budget=9, confidence=95), "confidence must lie strictly"),
    ],
)
def test_wrong_rules_are_refused(call, message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_wrong_looks_are_refused() -> None:
    rule = Stopping({"x": Target(absolute=0.1)}, budget=1_000)
    with pytest.raises(UnknownNameError, match="unknown metric 'x'"):
        rule.update({"y": narrow(20)})
    seen = rule.update({"x": narrow(20)}).rule
    with pytest.raises(InputError, match=r"a look must bring new streams; the last one had 20 \(got 20\)"):
        seen.update({"x": narrow(20)})
