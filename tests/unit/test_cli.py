"""The command line: refusals of one line, JSON as promised, the same bytes each time, and examples that run."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import click
import pytest

from invsim.cli import cli, main

TEMPLATE = resources.files("invsim.sim.scenarios").joinpath("template.toml.txt").read_text(encoding="utf-8")
PUT = "put = { plan_partner_growth ="
EDIT = 'edit = "active_csm_codes"\nput = { plan_partner_growth = { code = "WINTERLAUNCH26" } }'
RULE = 'remove_rule = { from = "a", to = "b", relation = "c" }'
Capsys = pytest.CaptureFixture[str]
SPAWN = [sys.executable, "-m", "invsim"]


# Refusals ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refusal:
    """A command that must fail with one line, and what that line must say.

    ``text`` is what bad.toml holds; ``line`` is the beginning of the line of it that must be named.
    """

    name: str
    args: str
    says: tuple[str, ...]
    text: str = ""
    line: str = ""

    def run_in(self, folder: Path) -> list[str]:
        folder.mkdir()
        (folder / "a-file").write_text("", encoding="utf-8")
        (folder / "a-folder.toml").mkdir()
        (folder / "bad.toml").write_bytes(self.text.encode("latin-1"))
        return shlex.split(self.args)

    def assert_met(self, code: int, out: str, err: str) -> None:
        assert "Traceback" not in err
        assert err.startswith("invsim: "), err
        assert err.endswith("\n"), err
        assert err.count("\n") == 1, err
        assert (code, out) == (2, "")
        for each in self.says:
            assert each in err, err
        if self.line:
            number = next(at for at, line in enumerate(self.text.splitlines(), 1) if line.startswith(self.line))
            assert f"bad.toml, line {number}, " in err, err


def manifest(name: str, old: str, new: str, line: str, *says: str) -> Refusal:
    assert old in TEMPLATE
    return Refusal(name, "run bad.toml --replications 2", says, TEMPLATE.replace(old, new, 1), line)


def model(name: str, text: str, line: str, *says: str) -> Refusal:
    return Refusal(name, "run payments --model bad.toml --replications 2", says, f'name = "x"\n{text}\n', line)


def payments(name: str, options: str, *says: str) -> Refusal:
    return Refusal(name, f"run payments --replications 2 {options}", says)


REFUSALS = [
    # Names
    Refusal("scenario", "run paymants", ("unknown scenario 'paymants'", "did you mean 'payments'?", "recipes")),
    payments("model", "--model gpt-5-mimi", "unknown model 'gpt-5-mimi'", "did you mean 'gpt-5-mini'?"),
    payments("arm", "--arms A0,A2X", "--arms", "unknown arm 'A2X'", "A2DRC"),
    payments("no arm", "--arms ,", "--arms", "','"),
    payments("level", "--level L3", "--level", "unknown wire level 'L3'", "L0, L1, L4, L5, L6"),
    payments("option", "--nonesuch", "--nonesuch"),
    Refusal("no argument", "run", ("SCENARIO",)),
    # Numbers
    Refusal("no replications", "run payments --replications 0", ("replications must be 1 or more", "got 0")),
    Refusal("negative replications", "run payments --replications -3", ("replications must be 1 or more", "got -3")),
    Refusal("replications in words", "run payments --replications ten", ("--replications", "'ten'")),
    payments("negative seed", "--seed -1", "seed must be 0 or more", "got -1"),
    payments("negative stream", "--events - --stream -1", "--stream", "got -1"),
    # Files
    Refusal("missing scenario", "run missing.toml", ("missing.toml", "No such file")),
    Refusal("folder as scenario", "scenario check a-folder.toml", ("a-folder.toml", "Is a directory")),
    payments("folder as model", "--model a-folder.toml", "a-folder.toml", "Is a directory"),
    payments("out is a file", "--out a-file", "a-file"),
    payments("out below a file", "--out a-file/below", "a-file"),
    payments("table below a file", "--table a-file/x.csv", "a-file"),
    payments("table of a wrong kind", "--table x.txt", "--table", ".csv or .md", "'x.txt'"),
    payments("figure without a name", "--figure .", "--figure"),
    payments("events below a file", "--events a-file/x", "a-file"),
    Refusal("new exists", "scenario new bad.toml", ("bad.toml", "exists already")),
    # Manifests
    Refusal("empty", "run bad.toml", ("bad.toml", "missing required field", "name")),
    manifest("syntax", 'name = "mine"', "name = ", "", "bad.toml", "not valid TOML", "line 3"),
    manifest("not text", "My first", "M\xff first", "", "bad.toml", "not UTF-8"),
    manifest("huge number", "after_episode = 5", f"after_episode = {'9' * 5000}", "", "bad.toml"),
    manifest("deep nesting", "after_episode = 5", f"after_episode = {'[' * 9999}", "", "bad.toml"),
    manifest("wrong type", "= 5", '= "5"', "after_episode", "drift[0].after_episode", "Expected int", "'5'"),
    manifest("unknown field", "after_episode = 5", "after = 5", "after =", "drift[0].after", "unknown field"),
    manifest("unknown arm of a file", '"A2D"]', '"A2X"]', "arms", "unknown arm 'A2X'"),
    manifest("no arms", '["A0", "A1", "A2", "A2D"]', "[]", "arms", "arms"),
    manifest("unknown domain", '"acme"', '"acne"', "domain", "unknown domain 'acne'", "did you mean 'acme'?"),
    manifest("unknown task", "G N G N G N  G", "G X G N G N  G", "stream", "unknown task 'X'"),
    manifest("unknown family", "ADD_ACTIVE", "ADD_NO", "family", "tasks.G.family", "'ADD_NO_PROMO_CODE'"),
    manifest("drift on a table", '"active_csm_codes"', '"active_codes"', "[[drift]]", "drift[0]", "'active_codes'"),
    manifest("drift on a row", PUT, 'remove = ["plan_x"]\n' + PUT, "[[drift]]", "drift[0]", "'plan_x'"),
    manifest("drift on a rule", EDIT, RULE, "[[drift]]", "drift[0]", "unknown rule", "a -> b (c)"),
    manifest("drift to a snapshot", EDIT, 'reload = "x"\nsnapshot = "s"', "snapshot", "unknown snapshot 's'"),
    manifest("drift after the end", "= 5", "= 12", "after_episode", "drift[0].after_episode", "0 to 11", "got 12"),
    manifest("drift before the start", "= 5", "= -1", "after_episode", "drift[0].after_episode", "got -1"),
    manifest("drift without a column", "{ code =", "{ kode =", "[[drift]]", "drift[0]", "code"),
    manifest("window on a class", '"governed"\nfirst', '"x"\nfirst', 'class = "x"', "unknown class 'x'"),
    manifest("window on nothing", "first = 6", "first = 11", "[[windows]]", "windows[0]"),
    manifest("window off the stream", "first = 6", "episodes = [99]", "", "bad.toml", "windows[0]", "99"),
    manifest("window that hides a metric", "governed_after", "evictions", "name = \"evi", "windows[0]", "'evictions'"),
    # Models
    model("probability", "[default]\np_apply = 1.2", "p_apply", "default.p_apply", "from 0 to 1", "1.2"),
    model("probability of nothing", "[default]\np_apply = nan", "p_apply", "default.p_apply", "nan"),
    model("counts", "[default]\np_apply = { applied = 5, of = 3 }", "p_apply", "default.p_apply", "'applied': 5"),
    model("rate of a wrong type", '[default]\np_apply = "often"', "p_apply", "default.p_apply", "'often'"),
    model("unknown rate", "[default]\np_aply = 0.5", "p_aply", "default.p_aply", "unknown field", "0.5"),
    model("retry law", "[default]\nretry = { pmf = [0.5, 0.6] }", "retry", "default.retry", "0.6"),
    model("negative cost", "[tokens]\nconflict = -1.0", "conflict", "tokens.conflict", "-1.0"),
    model("endless cost", "[tokens]\nconflict = inf", "conflict", "tokens.conflict", "inf"),
    model("published arms", 'published_arms = ["A0", "A2X"]', "published_arms", "unknown arm 'A2X'"),
    model("shape", "[shape.round]\np_apply = 0.5", "[shape", "unknown hint shape 'round'"),
]  # fmt: skip


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: each.name)
def test_a_mistake_is_one_line_in_process(
    refusal: Refusal, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = refusal.run_in(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    refusal.assert_met(main(args), *capsys.readouterr())


@pytest.mark.parametrize("refusal", REFUSALS[::4], ids=lambda each: each.name)
def test_a_mistake_is_one_line_in_a_shell(refusal: Refusal, tmp_path: Path) -> None:
    command = SPAWN + refusal.run_in(tmp_path / "here")
    done = subprocess.run(command, cwd=tmp_path / "here", capture_output=True, text=True, check=False)
    refusal.assert_met(done.returncode, done.stdout, done.stderr)


# JSON ----------------------------------------------------------------------------------------------------------------

RATES = {
    *("first_try_eligible", "validity", "compliance_given_valid", "governed_ten", "funding_pre", "funding_post"),
    *("eviction_precision", "eviction_precision_row", "eviction_recall_row"),
}
COUNTS = {"evictions", "restamped_entries", "retries", "attempts", "exhausted", "completed", "token_saving"}


def printed(capsys: Capsys, *args: str) -> str:
    assert main(list(args)) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def is_estimate(value: object) -> bool:
    if not isinstance(value, dict) or list(value) != ["value", "se", "n"] or type(value["n"]) is not int:
        return False
    number, se, n = value["value"], value["se"], value["n"]
    if number is None:
        return se is None and n == 0
    return isinstance(number, float) and n > 0 and (se is None if n == 1 else isinstance(se, float) and se >= 0)


@pytest.mark.parametrize("replications", [1, 5])
@pytest.mark.parametrize("model", ["claude-sonnet-4-6", "gemini-3.5-flash"])
def test_the_json_of_a_run(model: str, replications: int, capsys: Capsys) -> None:
    args = ["run", "payments", "--model", model, "--replications", str(replications), "--seed", "4", "--json"]
    data = strict(printed(capsys, *args))
    arms = data.pop("arms")
    asked = {"scenario": "payments", "model": model, "seed": 4, "replications": replications}
    assert data == {**asked, "engine": "vector", "wire": "L6"}
    names = ["A0", "A1", "A2", "A2D"] + ["A2DC", "A2DG"] * (model == "claude-sonnet-4-6")
    assert [arm.pop("arm") for arm in arms] == names
    for arm in arms:
        by_class = arm.pop("first_try_by_class")
        assert list(by_class) == ["governed", "funding", "none", "control"]
        assert arm.keys() >= RATES | COUNTS
        assert all(is_estimate(each) for each in (*arm.values(), *by_class.values()))
        rates = [each["value"] for each in (*(arm[name] for name in RATES), *by_class.values())]
        assert all(each is None or 0 <= each <= 1 for each in rates)
        assert arm["attempts"]["value"] == pytest.approx(36 + arm["retries"]["value"])
        assert arm["completed"]["value"] == pytest.approx(36 - arm["exhausted"]["value"])
    for name in ("first_try_eligible", "compliance_given_valid", "eviction_precision"):
        assert arms[0][name] == {"value": None, "se": None, "n": 0}
    assert arms[0]["token_saving"]["value"] == 0


def test_several_models_are_a_list(capsys: Capsys) -> None:
    args = ["--arms", "A2D", "--replications", "2", "--json"]
    several, one, other, published = (
        strict(printed(capsys, "run", "payments", *args, "--model", names))
        for names in ("compliant,refuser", "compliant", "refuser", "published")
    )
    assert several == [one, other]
    assert len(published) == 7


@pytest.mark.parametrize("command", ["scenario list", "model list", "arm list"])
def test_lists_are_json_too(command: str, capsys: Capsys) -> None:
    rows = strict(printed(capsys, *command.split(), "--json"))
    text = printed(capsys, *command.split())
    assert rows
    assert all(row["name"] in text and row["title"] in text for row in rows)


@pytest.mark.parametrize("file", ["bad.toml", "model.toml"])
def test_a_name_in_brackets_is_printed_as_it_is(file: str, tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "bad.toml").write_text(TEMPLATE.replace("My first", "[red]My[/blue] first"), encoding="utf-8")
    (tmp_path / "model.toml").write_text('name = "[red]My[/blue] first"', encoding="utf-8")
    args = [str(tmp_path / file)] if file == "bad.toml" else ["recipes", "--model", str(tmp_path / file)]
    assert "[red]My[/blue] first" in printed(capsys, "run", *args, "--replications", "2")


# Bytes and pipes -----------------------------------------------------------------------------------------------------


def test_the_same_command_gives_the_same_bytes(tmp_path: Path) -> None:
    args = "run payments --arms A1,A2DG --replications 3 --json --table t.md --events e.jsonl --out parts"
    outputs = []
    for seed in ("1", "2"):
        folder, env = tmp_path / seed, {**os.environ, "PYTHONHASHSEED": seed}
        folder.mkdir()
        done = subprocess.run([*SPAWN, *args.split()], cwd=folder, env=env, capture_output=True, check=True)
        assert done.stderr == b""
        written = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")}
        assert len(written) == 2 + 2 * 3 + 3
        outputs.append((done.stdout, written))
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("args", ["", "--events -", "--json"])
def test_a_reader_that_leaves_is_no_error(args: str) -> None:
    command = [*SPAWN, "run", "payments", "--replications", "2", *args.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""


def test_without_arguments_the_help_is_shown_line_by_line() -> None:
    done = subprocess.run(SPAWN, capture_output=True, text=True, check=False)
    assert "Commands:" in (done.stdout + done.stderr).splitlines()


# What a manifest starts from, and what happened ----------------------------------------------------------------------


def test_a_new_manifest_is_checked_and_run_and_never_overwritten(tmp_path: Path, capsys: Capsys) -> None:
    file = tmp_path / "mine.toml"
    assert str(file) in printed(capsys, "scenario", "new", str(file))
    assert "12 episodes" in printed(capsys, "scenario", "check", str(file))
    assert strict(printed(capsys, "run", str(file), "--replications", "2", "--json"))["scenario"] == "mine"
    file.write_text("mine", encoding="utf-8")
    assert main(["scenario", "new", str(file)]) == 2
    assert file.read_text(encoding="utf-8") == "mine"


def test_the_events_of_a_stream(tmp_path: Path, capsys: Capsys) -> None:
    file = tmp_path / "events.jsonl"
    args = ["run", "payments", "--model", "gemini-3.5-flash", "--arms", "A0,A2D", "--seed", "3", "--json"]
    printed(capsys, *args, "--replications", "5", "--events", str(file), "--stream", "4")
    events = [strict(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert events[0] == {
        "stream": 4, "arm": "A0", "type": "episode", "tick": 0, "episode": 0, "constraint": "governed",
        "key": "plan_partner_growth", "injected": "nothing", "entries": [], "store": 0,
    }  # fmt: skip
    assert list(dict.fromkeys(each["arm"] for each in events)) == ["A0", "A2D"]
    for arm in ("A0", "A2D"):
        mine = [each for each in events if each["arm"] == arm]
        kinds = [each["type"] for each in mine]
        assert {each["stream"] for each in mine} == {4}
        assert [each["tick"] for each in mine] == sorted(each["tick"] for each in mine)
        assert kinds.count("episode") == kinds.count("end") == 36
        assert kinds.count("drift") == 2
        assert kinds[-1] == "end"
        assert ("commit" in kinds) is ("alert" in kinds) is (arm == "A2D")
        assert kinds.count("attempt") == sum(each["attempts"] for each in mine if each["type"] == "end")
    drifts = [(each["tick"], each["subject"]) for each in events if each["type"] == "drift"]
    assert drifts == [(120, "table active_csm_codes"), (240, "table recommended_credit_token")] * 2


# Documentation -------------------------------------------------------------------------------------------------------


def commands(command: click.Command = cli, path: str = "invsim") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from commands(each, f"{path} {name}")


def examples(command: click.Command) -> list[str]:
    lines = [line.strip() for line in (command.help or "").splitlines()]
    after = [at for at, line in enumerate(lines) if line in {"Example:", "Examples:"}]
    return [line for line in lines[after[0] :] if line.startswith("invsim ")] if after else []


@pytest.mark.parametrize("named", [pytest.param(each, id=each[0]) for each in commands()])
def test_every_command_has_examples_that_run(
    named: tuple[str, click.Command], tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, command = named
    monkeypatch.chdir(tmp_path)
    counts = "model,shape,kind,applied,trials\nmine,add-a-field,first_attempt,41,60\n"
    (tmp_path / "counts.csv").write_text(counts, encoding="utf-8")
    row = '{"episode_id": "e", "step": 1, "tool": "pay", "outcome": "ok"}\n'
    (tmp_path / "trace.jsonl").write_text(row, encoding="utf-8")
    assert examples(command), f"{path} has no example"
    for line in examples(command):
        args = shlex.split(line)[1:]
        if "--precision" in args:  # a coarser one, for the sake of time
            args[args.index("--precision") + 1] = "0.01"
        assert isinstance(command, click.Group) or line.startswith(path)
        assert printed(capsys, *args), line


def test_a_command_without_an_example_is_found() -> None:
    assert not examples(click.Command("bare", help="Do something.\n\ninvsim bare"))
    assert examples(click.Command("shown", help="Do.\n\n\b\nExample:\n  invsim shown")) == ["invsim shown"]


def test_help_and_version_go_to_stdout(capsys: Capsys) -> None:
    assert printed(capsys, "--version").startswith("invsim, version ")
    assert printed(capsys, "-h") == printed(capsys, "--help")
    for path, _ in commands():
        assert printed(capsys, *path.split()[1:], "--help").startswith(f"Usage: {path}")


# Engines --------------------------------------------------------------------------------------------------------------


def payments_json(capsys: Capsys, *args: str) -> dict[str, Any]:
    return strict(printed(capsys, "run", "payments", "--model", "deepseek-v4-flash", *args, "--json"))


def test_auto_takes_what_answers_fastest_and_says_which(capsys: Capsys, tmp_path: Path) -> None:
    assert payments_json(capsys)["engine"] == "exact"
    assert payments_json(capsys, "--replications", "3")["engine"] == "vector"
    assert payments_json(capsys, "--out", str(tmp_path / "out"))["engine"] == "vector"
    middle = TEMPLATE.replace("after_episode = 5", "at_tick = 51")
    (tmp_path / "middle.toml").write_text(middle, encoding="utf-8")
    data = strict(printed(capsys, "run", str(tmp_path / "middle.toml"), "--json"))
    assert (data["engine"], data["replications"]) == ("simpy", 500)
    assert main(["run", str(tmp_path / "middle.toml"), "--engine", "exact"]) == 2
    assert "only --engine simpy can run that" in capsys.readouterr().err


def test_both_simulating_engines_give_the_same_numbers(capsys: Capsys) -> None:
    found = [payments_json(capsys, "--replications", "40", "--engine", engine) for engine in ("simpy", "vector")]
    assert [each.pop("engine") for each in found] == ["simpy", "vector"]
    assert found[0] == found[1]


def test_exact_values_have_no_error_and_lie_among_the_simulated(capsys: Capsys) -> None:
    exact = payments_json(capsys, "--engine", "exact", "--arms", "A1")["arms"][0]
    simulated = payments_json(capsys, "--replications", "20000", "--arms", "A1")["arms"][0]
    for metric in ("first_try_eligible", "validity", "compliance_given_valid", "retries", "token_saving"):
        assert exact[metric]["se"] == 0
        off = simulated[metric]["value"] - exact[metric]["value"]
        assert abs(off) <= 5 * simulated[metric]["se"]


def test_a_distribution_sums_to_one_and_has_the_mean(capsys: Capsys) -> None:
    arm = payments_json(capsys, "--engine", "exact", "--arms", "A2D", "--pmf", "retries,tokens,evictions")["arms"][0]
    assert set(arm["pmf"]) == {"retries", "tokens", "evictions"}
    for law in arm["pmf"].values():
        assert sum(each["p"] for each in law) == pytest.approx(1)
    mean = sum(each["value"] * each["p"] for each in arm["pmf"]["retries"])
    assert mean == pytest.approx(arm["retries"]["value"])


def test_a_run_to_a_precision_stops_by_itself_and_keeps_its_promise(capsys: Capsys) -> None:
    data = payments_json(capsys, "--engine", "vector", "--precision", "0.002")
    assert 5_000 < data["replications"] < 10_000_000
    for arm in data["arms"]:
        for metric in ("first_try_eligible", "validity", "token_saving"):
            assert 1.96 * (arm[metric]["se"] or 0) <= 0.002
    assert data["stopped"] == "precise"
    short = payments_json(capsys, "--precision", "0.001", "--metrics", "retries", "--budget", "3000")
    assert (short["replications"], short["stopped"]) == (3000, "budget")
    assert "budget was spent" in printed(capsys, "run", "payments", "--precision", "1e-9", "--budget", "200")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("--engine simpi", "unknown engine 'simpi'"),
        ("--engine vector --pmf retries --json", "--engine exact"),
        ("--pmf retries", "--pmf: goes with --json"),
        ("--budget 5", "--budget: goes with --precision"),
        ("--metrics retries", "--metrics: goes with --precision"),
        ("--stream 5", "--stream: goes with --events"),
        ("--engine exact --replications 5", "samples no streams"),
        ("--arms A0 --precision 0.1 --metrics eviction_precision", "is defined in these arms"),
        ("--engine exact --precision 0.1", "samples no streams"),
        ("--engine exact --pmf retrys --json", "'retrys'"),
        ("--precision 0.1 --replications 5", "not both (got 5)"),
        ("--precision -1", "above 0"),
        ("--precision nan", "above 0"),
        ("--precision 0.1 --metrics retrys", "unknown metric 'retrys': did you mean 'retries'?"),
        ("--precision 0.1 --budget 0", "budget must be 1 or more"),
    ],
)
def test_options_that_do_not_go_together_are_refused(args: str, says: str, capsys: Capsys) -> None:
    assert main(["run", "payments", *args.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert captured.err.count("\n") == 1


def test_an_explanation_adds_up_and_says_when_the_product_misleads(capsys: Capsys) -> None:
    args = ["explain", "payments", "--model", "claude-sonnet-5", "--replications", "2000"]
    data = strict(printed(capsys, *args, "--json"))
    for figures in data["exact"].values():
        terms = ("product", "conflicts", "stale", "refusals", "recovery", "uninjected")
        assert sum(figures[term] for term in terms) == pytest.approx(figures["realised"], abs=1e-9)
    governed = data["exact"]["governed"]
    assert governed["product"] > 0.5
    assert governed["realised"] < -3
    text = printed(capsys, *args)
    assert "governed: the product misleads" in text
    assert "S_max V C" in text


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("--vary p_aply=0:1", "unknown parameter 'p_aply'"),
        ("--vary gov.p_apply=0:1", "unknown class 'gov'"),
        ("--vary p_apply=0", "NAME=LOW:HIGH"),
        ("--vary p_apply=0:2", "p_apply varies between two probabilities, low below high (got [0.0, 2.0])"),
        ("--vary p_apply=1:0", "low below high"),
        ("--points 3", "power of 2"),
        ("--metric retrys", "unknown metric 'retrys'"),
    ],
)
def test_a_sensitivity_that_makes_no_sense_is_refused(args: str, says: str, capsys: Capsys) -> None:
    assert main(["sensitivity", "payments", "--points", "4", *args.split()]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.err.count("\n") == 1


def test_one_parameter_explains_everything(capsys: Capsys) -> None:
    args = ["sensitivity", "payments", "--points", "4", "--vary", "governed.p_apply=0:1", "--json"]
    (only,) = strict(printed(capsys, *args))["parameters"]
    assert (only["first"], only["total"]) == (1, 1)
