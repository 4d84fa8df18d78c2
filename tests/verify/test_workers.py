"""The same streams whatever the processes, the blocks and the order: nothing here is subject to chance."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from invsim.client.arms import get_arm
from invsim.client.planners import load_model
from invsim.experiment import run
from invsim.sim import engine, vector
from invsim.sim.facts import tabulate
from invsim.sim.plan import compile_plan
from invsim.sim.scenario import load_scenario

STREAMS, ARMS = 60, ("A1", "A2DC")


def played(job: tuple[str, str, int, int]) -> np.ndarray:
    """Play some streams in a process of its own, from the names alone."""
    by, arm, first, count = job
    plan, model = compile_plan(load_scenario("payments")), load_model("deepseek-v4-flash")
    how = {"arm": get_arm(arm), "model": model, "seed": 9, "first": first, "count": count}
    block = engine.simulate_block(plan, **how) if by == "simpy" else vector.simulate_block(tabulate(plan), **how)
    return block.episodes


def test_streams_do_not_depend_on_the_process_that_plays_them(ledger) -> None:
    cuts = [(0, 7), (7, 1), (8, 30), (38, 22)]
    jobs = [(by, arm, first, count) for by in ("simpy", "vector") for arm in ARMS for first, count in reversed(cuts)]
    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("spawn")) as pool:
        parts = dict(zip(jobs, pool.map(played, jobs), strict=True))
    different = 0
    for arm in ARMS:
        whole = played(("simpy", arm, 0, STREAMS))
        for by in ("simpy", "vector"):
            joined = np.concatenate([parts[by, arm, first, count] for first, count in cuts])
            different += int((joined != whole).sum())
    ledger.check("counts that differ between workers, cuts and engines", different, high=0)


def test_estimates_do_not_depend_on_the_chunk(ledger) -> None:
    plan, model = compile_plan(load_scenario("payments")), load_model("gemini-3.5-flash")
    found = {
        (by, chunk): run(plan, model=model, replications=200, seed=3, chunk=chunk, engine=by).arms
        for by in ("simpy", "vector")
        for chunk in (1, 37, 200)
    }
    ledger.check("different results over engines and chunks", len({repr(each) for each in found.values()}), high=1)
