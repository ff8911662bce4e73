"Artefact notebooks: read without running, run at once, said what failed, shown on one page."
import ast
import json
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace as NS

import nbformat
import pytest

from reveal_kit import cli, costs, index
from reveal_kit.agents import AGENTS
from reveal_kit.core import InputError, root
from reveal_kit.profiles import Profile
from reveal_kit.reproduce import accepted, artefacts, benchmarks_here, choose, common, for_each, run_all, run_one, serves, values, worked_out

MINI = Profile.load("mini")


def page(folder, name, parameters="out_dir: str = 'figures'  # where", code="1", needs=None, about="A page."):
    "A notebook in the form of an artefact."
    cell = lambda s, *tags: nbformat.v4.new_code_cell(textwrap.dedent(s), metadata=dict(tags=[*tags]) if tags else {})
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(f"# Page {name}\n\n> {about}"), cell(parameters, "parameters"), *([cell(needs, "needs")] if needs is not None else []), cell(code)],
                                  metadata=dict(kernelspec=dict(name="python3", display_name="python3", language="python")))
    Path(folder).mkdir(parents=True, exist_ok=True); p = Path(folder) / f"{name}.ipynb"; nbformat.write(nb, p); return p


# --- read, not run

@pytest.mark.parametrize("text, value", [
    ("[('reveal', {}), ('reveal', dict(verify=False))]", [("reveal", {}), ("reveal", dict(verify=False))]), ("[(m, {}) for m in methods]", [("direct", {}), ("reveal", {})]),
    ("[('reveal', dict(K=k, tau=max(taus))) for k in ks if k not in (2,)]", [("reveal", dict(K=1, tau=.8)), ("reveal", dict(K=3, tau=.8))]), ("[('a', {} if k == 2 else dict(k=k)) for k in ks[:2]]" , ValueError),
    ("[dict(x=('reveal', {}), y=('vesta', dict(ledger=False)))[w] for w in ['y', 'x']]", [("vesta", dict(ledger=False)), ("reveal", {})]), ("[*methods, -1] + [taus[-1]]", ["direct", "reveal", -1, .8]), ("dict(a=1) | {'b': ks[0]}", dict(a=1, b=1)),
    ("[x for k in ks for x in [k]]", ValueError), ("__import__('os').system('true')", ValueError), ("open('/etc/passwd').read()", ValueError), ("unknown", ValueError), ("(lambda: 1)()", ValueError), ("methods.copy()", ValueError), ("dict([('a', 1)])", ValueError), ("f'{ks}'", ValueError)])
def test_plain_expressions_are_worked_out_and_no_other(text, value):
    names = dict(methods=["direct", "reveal"], ks=[1, 2, 3], taus=[.6, .8]); node = ast.parse(text, mode="eval").body
    if value is ValueError:
        with pytest.raises(ValueError): worked_out(node, names)
    else: assert worked_out(node, names) == value


def test_needs_follow_the_parameters_and_a_cell_that_computes_is_named(tmp_path):
    page(tmp_path, "a", "methods: list = ['direct']\nk: int = 3", needs="needs = [(m, dict(k=k)) for m in methods]")
    page(tmp_path, "b", "n = 1"); page(tmp_path, "c", "n = 1", needs="needs = [x.spec for x in load()]"); page(tmp_path, "d", "n = 1", needs="runs = []"); page(tmp_path, "e", "n = 1", needs="needs = ['reveal']"); page(tmp_path, "f", "n = 1", needs="needs = [")
    page(tmp_path / "more", "g", "n = 1", needs="needs = 'a teacher'"); assert costs.needs(*artefacts(tmp_path / "more")) == "a teacher"
    a, b, *odd = artefacts(tmp_path)
    assert costs.needs(a) == [("direct", dict(k=3))] and costs.needs(a, dict(methods=["vesta"], k=4)) == [("vesta", dict(k=4))] and costs.needs(b) is None
    for x in odd:
        with pytest.raises(InputError, match=f"{x.name}: its runs depend"): costs.needs(x)


def test_values_that_are_computed_are_left_out(tmp_path):
    page(tmp_path, "a", "import os\nx: int = 3\ny = os.getcwd()\nz = [x, 4]")
    a, = artefacts(tmp_path)
    assert list(accepted(a)) == ["x", "y", "z"] and values(a) == dict(x=3, z=[3, 4]) and values(a, dict(x=1)) == dict(x=1, z=[1, 4])


@pytest.mark.parametrize("a", artefacts(), ids=lambda a: a.name)
def test_every_artefact_says_what_it_is_and_its_needs_can_be_read(a):
    assert a.title and a.about and "out_dir" in accepted(a)
    asked = costs.needs(a) or []
    for agent, switches in [] if isinstance(asked, str) else asked: assert agent in AGENTS and isinstance(switches, dict)


def test_choosing_keeps_the_order_and_names_what_there_is(tmp_path):
    for n in "abc": page(tmp_path, n)
    assert [a.name for a in choose(["c", "a", "c"], tmp_path)] == ["c", "a"] and len(choose([], tmp_path)) == 3
    with pytest.raises(InputError, match="no artefact 'x'; there are a, b, c"): choose(["x"], tmp_path)


# --- what a profile gives

def test_a_profile_gives_mode_and_benchmarks_that_are_there(tmp_path):
    assert common(MINI, "mini", "o") == dict(profile="mini", out_dir="o", mode="replay") and common(MINI, "mini", "o", "live")["mode"] == "live"
    (tmp_path / "lv").mkdir(); (tmp_path / "p.toml").write_text(f'extends = "mini"\nname = "mine"\n[benchmarks]\nlvbench = "{tmp_path}/lv"\nego-r1 = "{tmp_path}/nowhere"\n')
    p = Profile.load(tmp_path / "p.toml")
    assert benchmarks_here(p) == ["mini", "lvbench"]
    assert common(p, "p.toml", "o") == dict(profile="p.toml", out_dir="o", mode="auto", benchmarks=["mini", "lvbench"], benchmark="mini", videos=[])
    bare = common(Profile.load("paper-reveal"), "paper-reveal", "o"); assert bare["mode"] == "auto" and "benchmarks" not in bare and "videos" not in bare
    assert serves(MINI) and serves(Profile.load("paper-reveal")) and not serves(Profile.load("paper-vesta"))


def test_each_notebook_is_given_what_it_accepts(tmp_path):
    page(tmp_path, "a", "mode: str = 'auto'\nlimit: int = 0"); page(tmp_path, "b", "out_dir: str = ''\nn: int = 3")
    both = artefacts(tmp_path)
    assert for_each(both, dict(mode="replay", out_dir="o"), dict(limit=2)) == [dict(mode="replay", limit=2), dict(out_dir="o")]
    with pytest.raises(InputError, match="no chosen artefact has a parameter 'limt'; they have limit, mode, n, out_dir"): for_each(both, {}, dict(limt=2))


# --- running

WAIT = """
from pathlib import Path
import os, time
(Path(out_dir) / f"{me}.here").write_text(os.getcwd())
until = time.time() + 60
while not (Path(out_dir) / f"{other}.here").exists():
    assert time.time() < until, "the other notebook never came"
    time.sleep(.1)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    "Four notebooks, two of which wait for each other, one fails, one kills its kernel; in threads."
    d = tmp_path_factory.mktemp("ran")
    for me, other in ("ab", "ba"): page(d / "nbs", me, f"out_dir: str = ''\nme: str = '{me}'\nother: str = '{other}'", WAIT)
    page(d / "nbs", "bad", code="print('so far'); 1 / 0"); page(d / "nbs", "dead", code="import os; os._exit(3)")
    chosen, steps, said = artefacts(d / "nbs"), [], []
    (d / "exe").mkdir(); (d / "exe" / "dead.ipynb").write_text("left from an earlier run")
    return d, run_all(chosen, [dict(out_dir=str(d)), dict(out_dir=str(d)), {}, {}], d / "exe", jobs=2, progress=lambda *s: steps.append(s), said=said.append), steps, said


def test_notebooks_run_at_once_in_the_project(ran):
    d, done, *_ = ran
    assert [(o.name, o.ok) for o in done] == [("a", True), ("b", True), ("bad", False), ("dead", False)], [o.error for o in done]
    assert all(Path((d / f"{n}.here").read_text()) == root() for n in "ab")


def test_a_failure_keeps_its_executed_copy_and_the_rest_goes_on(ran):
    d, done, *_ = ran
    bad, dead = done[2:]
    assert bad.error == "ZeroDivisionError: division by zero" and "so far" in bad.executed.read_text() and "ZeroDivisionError" in bad.executed.read_text()
    assert "ied" in dead.error and "earlier run" not in dead.executed.read_text(), "DeadKernelError: Kernel died"


def test_progress_in_cells_and_outcomes_as_they_come(ran):
    _, done, steps, said = ran
    assert {o.name for o in said} == {"a", "b", "bad", "dead"} and len(said) == 4
    for name in ("a", "b", "bad"):
        mine = [(n, of) for s, n, of in steps if s == name]; assert mine[0][0] == 0 and mine[-1][0] == mine[-1][1] and mine == sorted(mine) and len(mine) >= 3


def test_a_misspelt_parameter_runs_nothing(tmp_path):
    page(tmp_path / "nbs", "a"); page(tmp_path / "nbs", "b")
    with pytest.raises(InputError, match="artefact b has no parameter 'out_dri'; it has out_dir"): run_all(artefacts(tmp_path / "nbs"), [{}, dict(out_dri="x")], tmp_path / "exe")
    assert not (tmp_path / "exe").exists()
    o = run_one(artefacts(tmp_path / "nbs")[0], dict(out_dri="x"), tmp_path / "exe"); assert not o.ok and "out_dri" in o.error


# --- what is there and what it would take

@pytest.fixture
def settled(tmp_path, monkeypatch):
    "Three questions of day4 and two of day5, asked of `says:Says` in different subsets."
    from reveal_kit.benchmarks import load
    from reveal_kit.runs import evaluate
    (tmp_path / "says.py").write_text("class Says:\n    def __init__(self, tone: str = 'calm'): self.tone = tone\n    def answer(self, q): return q.letters[0]\n")
    monkeypatch.syspath_prepend(str(tmp_path)); monkeypatch.setenv("REVEAL_HOME", str(tmp_path / "home"))
    sys.modules.pop("says", None); b = load("mini"); of = lambda v: tuple(q.id for q in b.questions if q.video == v)
    evaluate("says:Says", b, "mini", subset=of("day4"), limit=3, runs_dir=tmp_path / "runs", mode="replay"); evaluate("says:Says", b, "mini", subset=of("day5")[:2], runs_dir=tmp_path / "runs", mode="replay")
    yield tmp_path
    sys.modules.pop("says", None)


def test_settled_questions_are_counted_in_whichever_subset_they_were_asked(settled):
    known = costs.Known(MINI, settled / "runs")
    r = costs.unsettled(known, "says:Says", {}, "mini", ["day4"]); assert (r["questions"], r["settled"], r["left"]) == (20, 3, 17) and r["by"] == "mean of 5 settled questions" and r["calls"] == 0
    assert costs.unsettled(known, "says:Says", {}, "mini")["settled"] == 5
    assert costs.unsettled(known, "says:Says", {}, "mini", ["day4", "no such video"], 2)["left"] == 0
    r = costs.unsettled(known, "says:Says", {}, "mini", ["day4", "core"]); assert (r["questions"], r["settled"], r["left"]) == (52, 5, 47), "all of day4 and eight of each other day"
    other = costs.unsettled(known, "says:Says", dict(tone="loud"), "mini", ["day4"]); assert other["settled"] == 0 and other["run"] == "says:Says tone=loud", "another switch is another run"
    assert costs.Known(Profile.load("paper-reveal"), settled / "runs").past == [], "another profile's records say nothing"


def test_recorded_calls_are_an_upper_bound_and_give_the_rate(own_home, tmp_path):
    known = costs.Known(MINI, tmp_path)
    assert known.past == [] and known.rate > 1 and 0 < known.per_call("reveal") < 8192
    r = costs.unsettled(known, "retrieval", {}, "mini", ["day4"]); assert r["recorded"] == r["questions"] == r["left"] == 20 and r["calls"] == 20
    paper = costs.Known(Profile.load("paper-reveal"), tmp_path); assert paper.roles == {} and not (own_home / "calls" / "paper-reveal.sqlite").exists(), "a listing makes no log"


def known(past=(), per_call=None): return NS(past=list(past), per_call=lambda agent: per_call, p=Profile.load("paper-reveal"))
def rec(calls, tokens, error=None): return dict(id=f"q{tokens}", calls=calls, prompt=tokens - 10, completion=10, error=error)


def test_the_mean_of_the_same_switches_goes_before_that_of_the_agent_and_that_before_the_paper():
    run = lambda agent, switches, *rows: (dict(agent=agent, switches=switches), list(rows))
    past = [run("reveal", {}, rec(4, 100), rec(8, 300), rec(0, 10, "failed")), run("reveal", {}, rec(4, 100)), run("reveal", dict(K=1), rec(4, 50)), run("vesta", {}, rec(9, 900))]
    assert costs.per_question(known(past), "reveal", {}, "mini") == (6, 200, "mean of 2 settled questions") and costs.per_question(known(past), "reveal", dict(K=1), "mini")[:2] == (4, 50)
    assert costs.per_question(known(past), "reveal", dict(K=2), "mini")[2] == "mean of 3 settled questions"
    assert costs.per_question(known(), "reveal", {}, "lvbench")[:2] == (6.6, pytest.approx(145e6 / 1267, rel=1e-3)) and costs.per_question(known(), "reveal", {}, "video-mme-long")[1] == pytest.approx(199e6 / 900, rel=1e-3)
    assert costs.per_question(known(per_call=50), "reveal", {}, "lvbench")[1] == 6.6 * 50
    assert costs.per_question(known(), "vesta", dict(ledger=False), "mini")[:2] == (13, 60586) and costs.per_question(known(), "direct", {}, "mini")[:2] == (1, 262144)
    assert costs.per_question(known(), "mine:Agent", {}, "mini")[:2] == (None, None)


def test_a_run_that_two_artefacts_need_is_counted_once(tmp_path, own_home):
    for n in "ab": page(tmp_path / "nbs", n, "benchmarks: list = ['mini', 'lvbench']\nvideos: list = ['day4']", needs="needs = [('direct', {}), ('mine:Agent', {})]" if n == "a" else "needs = [('direct', {})]")
    sys.modules.pop("mine", None); (tmp_path / "mine.py").write_text("class Agent:\n    def answer(self, q): return None\n"); sys.path.insert(0, str(tmp_path))
    try: d = costs.listing(artefacts(tmp_path / "nbs"), [dict(videos=["day4"])]*2, Profile.load("paper-reveal"), rate=1000, runs_dir=tmp_path / "runs")
    finally: sys.path.remove(str(tmp_path)); sys.modules.pop("mine", None)
    assert [x["note"] for x in d["artefacts"]] == ["lvbench is not here"]*2
    assert d["total"] == dict(questions=40, settled=0, left=40, calls=20, tokens=20 * 262144, hours=pytest.approx(20 * 262144 / 3.6e6, abs=.01)) and d["by"] == "given"
    a, b = d["artefacts"]; assert [r["run"] for r in a["runs"]] == ["direct", "mine:Agent"] and a["note"] == "lvbench is not here" and a["runs"][1]["hours"] is None
    assert "40 questions" in cli.listing_text(d).splitlines()[-2]


def test_videos_of_another_benchmark_ask_nothing_of_this_one(own_home, tmp_path):
    row = costs.unsettled(costs.Known(Profile.load("mini"), tmp_path / "runs"), "direct", {}, "mini", ["655"])
    assert row["questions"] == row["left"] == 0 and costs.unsettled(costs.Known(Profile.load("mini"), tmp_path / "runs"), "direct", {}, "mini", ["655", "day4"])["questions"] == 20


# --- at a glance

def artefact(d, name): return NS(name=name, path=d / f"{name}.ipynb", title=f"T {name}", about="about")

def test_files_go_to_the_longest_name_and_strangers_are_left_out(tmp_path):
    for f in ("fig4.png", "fig4_b.csv", "fig4_b_more.csv", "fig40.csv", "README.md", "index.html", ".fig4.png.1.tmp", "fig4.pdf"): (tmp_path / f).write_text("x\n")
    found = index.shown(tmp_path, [artefact(tmp_path, n) for n in ("fig4_b", "fig4", "fig40", "empty")])
    assert {s.artefact.name: [p.name for p in s.files] for s in found} == {"fig4": ["fig4.png"], "fig4_b": ["fig4_b.csv", "fig4_b_more.csv"], "fig40": ["fig40.csv"]}
    assert index.shown(tmp_path / "none", []) == []


@pytest.mark.parametrize("text, rows", [("", 0), ("a,b\n", 0), ("a,b\n1\n2,3,4\n", 2), ("a\n" + "1\n" * 99, 99)])
def test_any_csv_file_is_shown(tmp_path, text, rows):
    (tmp_path / "t.csv").write_text(text)
    assert len(index.read_table(tmp_path / "t.csv")[1]) == rows and index.html_table(tmp_path / "t.csv").count("<tr>") == 1 + min(rows, index.MOST) and index.md_table(tmp_path / "t.csv")


def test_the_page_is_plain_and_the_same_twice(tmp_path):
    (tmp_path / "t.csv").write_text('a,"<script>alert(1)</script>"\n1,x|y\n'); (tmp_path / "t.png").write_bytes(b"p"); (tmp_path / "t.svg").write_text("s"); (tmp_path / "t.json").write_text("{}"); (tmp_path / "t.md").write_text("It **agrees** & <b>holds</b>.\n\n# Not shown")
    a, p = [artefact(tmp_path, "t")], NS(name="p", title="a profile")
    first = [f.read_bytes() for f in index.write_index(tmp_path, p, a)]; html, md = (f.decode() for f in first)
    assert first == [f.read_bytes() for f in index.write_index(tmp_path, p, a)], "the page is not one of its own files, and has no time"
    assert "<script" not in html and "&lt;script&gt;" in html and "It <b>agrees</b> &amp; &lt;b&gt;holds&lt;/b&gt;." in html and "Not shown" not in html and 'src="t.png"' in html and 'href="t.json"' in html and 'href="t.svg"' in html
    assert "![T t](t.png)" in md and "x\\|y" in md and "It **agrees**" in md


# --- the command

@pytest.fixture
def reveal(monkeypatch, capsys):
    def run(*args):
        monkeypatch.setattr(sys, "argv", ["reveal", "reproduce", *map(str, args)])
        try: cli.main(); code = 0
        except SystemExit as e: code = e.code or 0
        out = capsys.readouterr(); return code, out.out, out.err
    return run


@pytest.fixture
def project(tmp_path, monkeypatch, own_home):
    "A project of two artefacts with recordings for the profile mini."
    p = tmp_path / "project"; (p / "data" / "mini").mkdir(parents=True); (p / "settings.ini").write_text(""); (p / "data" / "mini" / "calls.jsonl.gz").write_bytes(b"")
    page(p / "nbs" / "paper", "t1", "profile: str = ''\nmode: str = ''\nlimit: int = 0\nruns_dir: str = ''\nout_dir: str = ''", "open(f'{out_dir}/t1.csv', 'w').write(f'profile,mode,limit,runs\\n{profile},{mode},{limit},{bool(runs_dir)}\\n')", needs="needs = []", about="First & best.")
    page(p / "nbs" / "paper", "t2", code="raise ValueError('no such thing')")
    monkeypatch.chdir(p); return p


def test_command_runs_shows_and_names_what_failed(reveal, project):
    out = project / "figures" / "mini-limit3"; out.mkdir(parents=True) # three questions do not overwrite the figures of all
    code, text, err = reveal("--jobs", 2, "--limit", 3)
    assert code == 1 and "t2: FAILED" in err and "t1: done" in err and "ValueError: no such thing" in text
    copy = text.split("t2 failed: see ")[1].splitlines()[0]; assert Path(copy).exists() and not list((project / "nbs").rglob("t2*.nbconvert*"))
    assert (out / "t1.csv").read_text().splitlines()[1] == "mini,replay,3,False" and "First &amp; best." in (out / "index.html").read_text() and "t1.csv" in (out / "README.md").read_text()
    (project / "figures" / "mini-limit2").mkdir(); code, *_ = reveal("t1", "--set", "limit=2"); assert code == 0 and (project / "figures" / "mini-limit2" / "t1.csv").exists() and not (project / "figures" / "mini").exists()
    code, text, _ = reveal("t1", "--live", "--out", out, "--json"); assert code == 0 and json.loads(text)[0]["ok"] and (out / "t1.csv").read_text().splitlines()[1] == "mini,live,0,True", "what is settled would not be asked again"


@pytest.mark.parametrize("args, code, says", [(["--fill", "--live"], 2, "--fill"), (["t9"], 1, "no artefact 't9'"), (["--set", "limt=3"], 1, "limt"), (["--set", "limit"], 1, "name=value"), (["--jobs", "0"], 2, "jobs"), (["--fill", "--jobs", "2"], 1, "base_url"), (["t2", "--limit", "3"], 1, "limit"),
                                              (["--profile", "none"], 1, "none")])
def test_command_refuses_before_anything_runs(reveal, project, args, code, says):
    got, _, err = reveal(*args); assert got == code and says in err and not (project / "figures").exists()


def test_command_lists_without_running(reveal, project):
    (project / "data" / "mini" / "calls.jsonl.gz").unlink(); (project / "data" / "paper").symlink_to(Path(cli.__file__).parent.parent / "data" / "paper")
    code, text, err = reveal("--list"); assert code == 0 and "t1: First & best." in text and "needs no run" in text and "no cell tagged `needs`" in text and "Not counted: t2." in text
    code, text, _ = reveal("--list", "--json", "--rate", 500); d = json.loads(text); assert code == 0 and [a["artefact"] for a in d["artefacts"]] == ["t1", "t2"] and d["rate"] == 500
    assert not (project / "figures").exists()
