"""Result frames: their schema, their nulls, and the Parquet parts that ``run --out`` leaves behind."""

import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from invsim.cli import main
from invsim.client.arms import get_arm
from invsim.client.planners import load_model
from invsim.located import Source
from invsim.sim.engine import simulate_block
from invsim.sim.plan import Plan, compile_plan
from invsim.sim.result import PER_EPISODE, PER_STREAM, Block, episode_frame, read_block, stream_frame, write_block
from invsim.sim.scenario import load_scenario, parse_scenario, shipped_text
from invsim.world.domain import domain_source

EPISODE_SCHEMA = {
    "scenario": pl.String,
    "model": pl.String,
    "arm": pl.String,
    "stream": pl.Int64,
    "episode": pl.Int64,
    "class": pl.String,
    "key": pl.String,
    "shape": pl.String,
    "injected": pl.String,
    "attempts": pl.Int64,
    "retries": pl.Int64,
    "completed": pl.Boolean,
    "first_try": pl.Boolean,
    "addressable": pl.Boolean,
    "eligible": pl.Boolean,
    "evicted": pl.Int64,
    "restamped": pl.Int64,
    "injected_entries": pl.Int64,
}
STREAM_COLUMNS = [
    "scenario", "model", "arm", "stream", "attempts", "retries", "completed", "exhausted", "first_try", "evictions",
    "restamped_entries", "restamp_operations", "evicted_right_by_row", "evicted_right_by_table", "required_by_row",
    "required_by_table", "contract_failures",
]  # fmt: skip

UNCONSTRAINED = """
name = "plain"
domain = "acme"
stream = "N N"
arms = ["A0"]
[tasks.N]
class = "none"
request = { plan = "plan_standard", amount = 10.0 }
"""


@cache
def plan_of(scenario: str) -> Plan:
    return compile_plan(load_scenario(scenario))


@cache
def block_of(scenario: str, arm: str, model: str = "gemini-3.5-flash", first: int = 7, count: int = 3) -> Block:
    return simulate_block(
        plan_of(scenario), arm=get_arm(arm), model=load_model(model), seed=2, first=first, count=count
    )


def episodes_of(scenario: str, arm: str) -> pl.DataFrame:
    return episode_frame(plan_of(scenario), block_of(scenario, arm), model="m", arm=arm)


def streams_of(scenario: str, arm: str) -> pl.DataFrame:
    return stream_frame(plan_of(scenario), block_of(scenario, arm), model="m", arm=arm)


# Episodes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["payments", "recipes", "rules", "control"])
@pytest.mark.parametrize("arm", ["A0", "A1", "A2DRC"])
def test_there_is_one_row_an_episode_under_a_fixed_schema(scenario: str, arm: str) -> None:
    frame = episodes_of(scenario, arm)
    episodes = len(plan_of(scenario).episodes)
    assert dict(frame.schema) == EPISODE_SCHEMA
    assert frame.select("stream", "episode").rows() == [(s, e) for s in (7, 8, 9) for e in range(episodes)]
    assert frame["model"].unique().to_list() == ["m"]
    assert frame["arm"].unique().to_list() == [arm]


def test_only_a_task_without_a_constraint_has_nulls() -> None:
    frame = episodes_of("payments", "A2D")
    nulls = {name: count for name, count in frame.null_count().row(0, named=True).items() if count}
    plain = 3 * sum(task.slot is None for task in plan_of("payments").episodes)
    assert nulls == {"key": plain, "shape": plain}
    assert set(frame.filter(pl.col("key").is_null())["class"]) == {"none"}
    assert frame.select(pl.col("shape").is_null().eq(pl.col("key").is_null()).all()).item()


def test_the_schema_holds_where_no_task_has_a_constraint() -> None:
    plan = compile_plan(parse_scenario(Source("plain.toml", UNCONSTRAINED)))
    block = simulate_block(plan, arm=get_arm("A0"), model=load_model("compliant"), seed=0, first=0, count=1)
    frame = episode_frame(plan, block, model="m", arm="A0")
    assert dict(frame.schema) == EPISODE_SCHEMA
    assert frame["key"].to_list() == frame["shape"].to_list() == [None, None]
    assert stream_frame(plan, block, model="m", arm="A0").columns == STREAM_COLUMNS


@pytest.mark.parametrize("arm", ["A0", "A1", "A2"])
def test_the_columns_of_an_episode_agree_with_each_other_and_with_the_block(arm: str) -> None:
    frame, block = episodes_of("payments", arm), block_of("payments", arm)
    for name in PER_EPISODE:
        if name != "injected":
            assert frame[name].cast(pl.Int64).to_list() == block.episode(name).ravel().tolist(), name
    assert frame["attempts"].is_between(1, 5).all()
    assert (frame["retries"] == frame["attempts"] - 1).all()
    assert (frame["first_try"] == (frame["completed"] & (frame["attempts"] == 1))).all()
    assert frame.filter(~pl.col("completed"))["attempts"].unique().to_list() == [5]
    assert set(frame["injected"]) <= {"nothing", "valid", "conflict", "stale"}
    assert frame.filter(pl.col("injected") != "nothing")["addressable"].all()


def test_the_words_for_what_was_injected_by_hand() -> None:
    frame = episode_frame(plan_of("payments"), block_of("payments", "A1", "compliant-stale", 0, 1), model="m", arm="A1")
    governed = frame.filter(pl.col("class") == "governed")
    # Learned at 0, valid until the code rotates after 11, stale at 12, and from then on both are injected.
    assert governed["injected"].to_list() == ["nothing", *["valid"] * 3, "stale", *["conflict"] * 7]
    assert governed["first_try"].to_list() == [False, True, True, True, *[False] * 8]
    assert governed["shape"].unique().to_list() == ["add-a-field"]
    assert governed["eligible"].to_list() == [False, True, True, True, False, False, *[True] * 6]
    assert not frame.filter(pl.col("class") != "governed")["eligible"].any()


# Streams -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scenario", "drift"), [("payments", 2), ("recipes", 2), ("control", 0)])
@pytest.mark.parametrize("arm", ["A0", "A2D"])
def test_there_is_one_row_a_stream_under_a_fixed_schema(scenario: str, drift: int, arm: str) -> None:
    frame = streams_of(scenario, arm)
    assert frame.columns == [*STREAM_COLUMNS, *(f"alert_{at}" for at in range(1, drift + 1))]
    assert frame.dtypes == [*[pl.String] * 3, *[pl.Int64] * (len(frame.columns) - 3)]
    assert frame["stream"].to_list() == [7, 8, 9]


def test_drift_that_is_never_noticed_is_null() -> None:
    never, seen = streams_of("payments", "A0"), streams_of("payments", "A2D")
    assert never.select("alert_1", "alert_2").null_count().row(0) == (3, 3)
    assert seen["alert_1"].to_list() == [12, 12, 12]
    assert seen["alert_2"].to_list() == [24, 24, 24]
    assert never.drop("alert_1", "alert_2").null_count().sum_horizontal().item() == 0


@pytest.mark.parametrize("arm", ["A0", "A1", "A2", "A2D"])
def test_a_stream_is_the_sum_of_its_episodes(arm: str) -> None:
    streams, block = streams_of("payments", arm), block_of("payments", arm)
    sums = (
        episodes_of("payments", arm)
        .group_by("stream", maintain_order=True)
        .agg(
            pl.col("attempts", "retries", "completed", "first_try", "evicted", "restamped").sum(),
            exhausted=(~pl.col("completed")).sum(),
        )
        .rename({"evicted": "evictions", "restamped": "restamped_entries"})
    )
    for name in sums.columns:
        assert sums[name].to_list() == streams[name].to_list(), name
    for name in PER_STREAM:
        assert streams[name].to_list() == block.stream(name).tolist(), name


# Parquet -------------------------------------------------------------------------------------------------------------


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_written_block_reads_back_as_its_frames(tmp_path: Path) -> None:
    plan, block = plan_of("payments"), block_of("payments", "A2")
    write_block(plan, block, model="gpt-5.4-mini", arm="A2", folder=tmp_path)
    (episodes,), (streams,) = (list((tmp_path / kind).iterdir()) for kind in ("episodes", "streams"))
    assert pl.read_parquet(episodes).equals(episode_frame(plan, block, model="gpt-5.4-mini", arm="A2"))
    assert pl.read_parquet(streams).equals(stream_frame(plan, block, model="gpt-5.4-mini", arm="A2"))
    assert episodes.suffix == streams.suffix == ".parquet"


def test_a_run_writes_parts_that_agree_with_its_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "folder"
    options = ["--model", "gemini-3.5-flash,gpt-5.4-mini", "--arms", "A0,A2", "--replications", "501"]
    assert main(["run", "payments", *options, "--out", str(out)]) == 0
    capsys.readouterr()
    episodes, streams = pl.read_parquet(out / "episodes"), pl.read_parquet(out / "streams")
    summary = pl.read_parquet(out / "summary.parquet")
    for kind in ("episodes", "streams", "finished"):
        assert len(list((out / kind).iterdir())) == 2 * 2 * 2  # two models, two arms, two parts of up to 500
    assert len(files(out)) == 3 * 2 * 2 * 2 + 3
    assert all(name.endswith(".parquet") for name in files(out) if name.startswith(("episodes", "streams")))
    assert dict(episodes.schema) == EPISODE_SCHEMA
    assert streams.columns == [*STREAM_COLUMNS, "alert_1", "alert_2"]
    assert (len(episodes), len(streams)) == (2 * 2 * 501 * 36, 2 * 2 * 501)
    assert streams.select("model", "arm", "stream").is_unique().all()
    assert dict(summary.schema) == {
        "scenario": pl.String, "model": pl.String, "arm": pl.String, "metric": pl.String,
        "value": pl.Float64, "se": pl.Float64, "n": pl.Int64,
    }  # fmt: skip
    assert summary.select("scenario", "model", "arm", "metric").is_unique().all()
    for (model, arm), mine in streams.group_by("model", "arm"):
        figures = {row["metric"]: row for row in summary.filter(model=model, arm=arm).to_dicts()}
        assert sorted(mine["stream"]) == list(range(501))
        for name in ("attempts", "retries", "completed", "exhausted", "evictions", "restamped_entries"):
            assert figures[name]["value"] == pytest.approx(mine[name].mean()), (model, arm, name)
            assert figures[name]["se"] == pytest.approx(mine[name].std() / np.sqrt(501), abs=1e-12), (model, arm, name)
        rows = episodes.filter(model=model, arm=arm)
        for (name,), some in rows.group_by("class"):
            assert figures[f"first_try_by_class.{name}"]["value"] == pytest.approx(some["first_try"].mean())
        eligible = figures["first_try_eligible"]["value"]
        assert eligible == (None if arm == "A0" else pytest.approx(rows.filter("eligible")["first_try"].mean()))
    undefined = summary.filter(pl.col("value").is_null())
    assert undefined["n"].unique().to_list() == [0]
    assert not summary["value"].is_nan().any()


def model_file(path: Path, name: str) -> Path:
    path.write_text(f"name = '{name}'\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "name", ["../../evil", "/etc/evil", "..", ".", "a/b\\c", "C:evil", "ünï cödé", "gpt-5.4-maxi", "*?<>|"]
)
def test_no_name_of_a_model_leaves_the_folder(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "one" / "two" / "three"
    home.mkdir(parents=True)
    file = model_file(home / "model.toml", name)
    before = files(tmp_path)
    out = home / "out"
    args = ["run", "recipes", "--model", str(file), "--arms", "A2", "--replications", "2", "--out", str(out)]
    assert main(args) == 0
    capsys.readouterr()
    new = [path for path in files(tmp_path) if path not in before]
    assert [Path(path).parent.name for path in new] == ["out", "episodes", "finished", "out", "streams", "out"]
    assert all(path.startswith("one/two/three/out/") for path in new)
    assert pl.read_parquet(out / "episodes")["model"].unique().to_list() == [name]


@pytest.mark.parametrize("out", ["file:/x", "~", "[a]*", "s3:/x"])
def test_the_name_of_a_folder_is_nothing_but_a_name(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "recipes", "--arms", "A2", "--replications", "2", "--out", out]) == 0
    capsys.readouterr()
    written = files(tmp_path / out)
    parts = [Path(file).parts[-2:] for file in written if file.endswith(".parquet")]
    assert [part[0] for part in parts[:-1]] == ["episodes", "streams"]
    assert parts[-1][-1] == "summary.parquet"
    assert files(tmp_path) == [f"{out}/{file}" for file in written]


@pytest.mark.parametrize(("one", "other"), [("m.1", "m-1"), ("a b", "a/b"), ("é", "è")])
def test_models_with_like_names_do_not_overwrite_each_other(
    one: str, other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = [str(model_file(tmp_path / f"{at}.toml", name)) for at, name in enumerate((one, other))]
    args = ["run", "recipes", "--model", ",".join(both), "--arms", "A2", "--replications", "2"]
    assert main([*args, "--out", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    assert sorted(pl.read_parquet(tmp_path / "out" / "streams")["model"].unique()) == sorted([one, other])


# Taken up again ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["payments", "recipes", "control"])
def test_a_block_comes_back_from_its_parts(scenario: str, tmp_path: Path) -> None:
    plan, model = compile_plan(load_scenario(scenario)), load_model("claude-haiku-4-5")
    block = simulate_block(plan, arm=get_arm("A2"), model=model, seed=1, first=7, count=5)
    where = {"model": model.name, "arm": "A2", "folder": tmp_path}
    write_block(plan, block, **where)
    found = read_block(plan, first=7, count=5, **where)
    assert found is not None
    for name in ("episodes", "streams", "alerts"):
        got, wanted = getattr(found, name), getattr(block, name)
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        assert (got == wanted).all()
    assert read_block(plan, first=7, count=4, **where) is None
    assert read_block(plan, first=8, count=5, **where) is None
    other = plan_of("rules" if scenario == "recipes" else "recipes")
    assert read_block(other, first=7, count=5, **where) is None


@pytest.mark.parametrize("kind", ["episodes", "streams", "finished"])
def test_a_part_that_is_damaged_anywhere_is_played_again(kind: str, tmp_path: Path) -> None:
    plan, block = plan_of("payments"), block_of("payments", "A2")
    where = {"model": "gpt-5.4-mini", "arm": "A2", "folder": tmp_path}
    write_block(plan, block, **where)
    (part,) = (tmp_path / kind).iterdir()
    sound = part.read_bytes()
    for at in range(0, len(sound), max(1, len(sound) // 200)):
        part.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        assert read_block(plan, first=block.first, count=len(block.streams), **where) is None, at
    for damaged in (b"", sound[:-20], sound + b"x"):
        part.write_bytes(damaged)
        assert read_block(plan, first=block.first, count=len(block.streams), **where) is None
    part.unlink()
    assert read_block(plan, first=block.first, count=len(block.streams), **where) is None
    part.write_bytes(sound)
    assert read_block(plan, first=block.first, count=len(block.streams), **where) is not None


LONG = ["run", "payments", "--model", "gpt-5-mini", "--arms", "A1,A2D", "--engine", "simpy", "--replications", "1200"]


def test_a_run_that_is_killed_goes_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    process = subprocess.Popen([sys.executable, "-m", "invsim", *LONG, "--out", str(out)], stdout=subprocess.DEVNULL)
    for _ in range(3000):
        if len(list(out.glob("finished/*.json"))) >= 2:
            break
        time.sleep(0.01)
    process.kill()
    process.wait()
    kept = {path: path.stat().st_mtime_ns for path in out.glob("finished/*.json")}
    assert 2 <= len(kept) < 6
    assert main([*LONG, "--out", str(out), "--json"]) == 0
    resumed = capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert main([*LONG, "--out", str(whole), "--json"]) == 0
    assert capsys.readouterr().out == resumed
    for name in ("episodes", "streams"):
        assert sorted(path.name for path in (out / name).glob("*.parquet")) == sorted(
            path.name for path in (whole / name).glob("*.parquet")
        )
        assert pl.read_parquet(out / name).equals(pl.read_parquet(whole / name))
    assert pl.read_parquet(out / "summary.parquet").equals(pl.read_parquet(whole / "summary.parquet"))


@pytest.mark.parametrize("other", [["--seed", "2"], ["--replications", "3"], ["--arms", "A1"], ["--level", "L4"]])
def test_another_run_does_not_go_on_with_it(
    other: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["run", "control", "--arms", "A2", "--replications", "2", "--out", str(tmp_path / "out")]
    assert main(run) == 0
    assert main(run) == 0
    capsys.readouterr()
    assert main([*run, *other]) == 2
    assert "--out: is not empty, and was not begun by this run" in capsys.readouterr().err


def test_a_changed_model_is_another_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = model_file(tmp_path / "m.toml", "mine")
    run = [
        "run",
        "control",
        "--model",
        str(file),
        "--arms",
        "A2",
        "--replications",
        "2",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(run) == 0
    file.write_text(file.read_text() + "\n[default]\np_apply = 0.5\n")
    capsys.readouterr()
    assert main(run) == 2
    assert "was not begun by this run" in capsys.readouterr().err


def test_a_changed_domain_beside_the_scenario_is_another_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    for folder in (home, elsewhere):
        folder.mkdir()
        with_domain_beside(folder)
    run = ["run", "mine.toml", "--arms", "A2", "--replications", "2", "--out", str(tmp_path / "out")]
    monkeypatch.chdir(home)
    assert main(run) == 0
    monkeypatch.chdir(elsewhere)
    assert main(run) == 0  # the same texts
    domain = elsewhere / "domain.toml"
    domain.write_text(f"{domain.read_text()}\n# another\n")
    capsys.readouterr()
    assert main(run) == 2
    assert "was not begun by this run" in capsys.readouterr().err


def with_domain_beside(folder: Path) -> None:
    """Write the payments scenario as a file, with its domain in another."""
    text = shipped_text("payments").replace('name = "payments"', 'name = "mine"', 1)
    (folder / "mine.toml").write_text(text.replace('domain = "acme"', 'domain = "domain.toml"', 1))
    source = domain_source("acme")
    assert source is not None
    (folder / "domain.toml").write_text(source.text)


def test_a_run_that_is_refused_or_was_killed_at_once_leaves_its_folder_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    run = ["run", "control", "--arms", "A2", "--replications", "2", "--out", str(out)]
    assert main([*run, "--engine", "exact"]) == 2
    (out / ".begun.json.7-ab.unfinished").write_bytes(b"{")
    capsys.readouterr()
    assert main(run) == 0


def test_a_disk_that_is_full_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, data: bytes) -> int:
        if self.parent.name == "streams":
            raise OSError(28, os.strerror(28))
        with self.open("wb") as file:
            return file.write(data)

    run = ["run", "control", "--arms", "A2", "--replications", "2", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(Path, "write_bytes", full)
    assert main(run) == 2
    found = capsys.readouterr()
    assert found.err.count("\n") == 1
    assert ".parquet: cannot be written: No space left on device" in found.err
    monkeypatch.undo()
    assert main(run) == 0
    assert not list(tmp_path.rglob("*.unfinished"))
