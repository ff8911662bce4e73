"Servers: started, waited for, stopped, and never left behind."
import dataclasses, http.client, json, os, signal, subprocess, sys, textwrap, time
from pathlib import Path

import pytest

from reveal_kit import serve as S
from reveal_kit import zoo
from reveal_kit.chat import Endpoint
from reveal_kit.core import InputError
from reveal_kit.profiles import Profile

FAKE = Path(__file__).with_name("fake_vllm.py")


@pytest.fixture
def fake(tmp_path, monkeypatch):
    "A home of its own, and the stand-in as vLLM: `fake('stubborn ready=1')`; `.left()` are the processes that still run."
    monkeypatch.setenv("REVEAL_HOME", str(tmp_path / "home")); monkeypatch.setenv("REVEAL_VLLM", f"{sys.executable} {FAKE} serve")
    monkeypatch.setenv("FAKE_PIDS", str(tmp_path / "pids")); monkeypatch.setenv("TMPDIR", str(tmp_path)); monkeypatch.setattr("tempfile.tempdir", None)
    def words(w): monkeypatch.setenv("FAKE_VLLM", w)
    words.pids = lambda: [int(p) for p in (tmp_path / "pids").read_text().split()] if (tmp_path / "pids").exists() else []
    words.left = lambda: [p for p in words.pids() if alive(p)]
    words("")
    yield words
    for p in words.left(): os.kill(p, signal.SIGKILL)


def alive(pid):
    try: return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError: return False


def until(what, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what(): return True
        time.sleep(0.05)
    return what()


def post(end, **body):
    c = http.client.HTTPConnection(end.base_url.removeprefix("http://").removesuffix("/v1"), timeout=120)
    c.request("POST", "/v1/chat/completions", json.dumps(dict(model=end.model, **body)), {"Authorization": f"Bearer {end.api_key}", "Content-Type": "application/json"})
    r = c.getresponse(); return r.status, json.loads(r.read())


ROLE = dict(engine="vllm", model="qwen3.5-27b", context=4096)
SCHEMA = dict(type="object", properties=dict(answer=dict(enum=["B", "A"])), required=["answer"])
ASK = dict(messages=[dict(role="user", content="A or B?")], response_format=dict(type="json_schema", json_schema=dict(name="a", schema=SCHEMA)), max_tokens=40)


def test_vllm_serves_every_role_of_its_model_and_stops(fake):
    fake("ready=0.5 worker")
    with S.serve(dict(default=ROLE, planner=ROLE | dict(max_tokens=99, extra=dict(chat_template_kwargs=dict(enable_thinking=False))))) as ends:
        assert list(ends) == ["default", "planner"] and isinstance(ends["default"], Endpoint)
        assert ends["default"].base_url == ends["planner"].base_url and ends["default"].base_url.startswith("http://127.0.0.1:")
        assert ends["planner"].max_tokens == 99 and ends["planner"].extra == dict(chat_template_kwargs=dict(enable_thinking=False)) and ends["default"].extra == {}
        assert ends["default"].weights == "Qwen/Qwen3.5-27B@main" == zoo.weights("qwen3.5-27b")
        status, r = post(ends["default"], **ASK)
        assert status == 200 and json.loads(r["choices"][0]["message"]["content"]) == dict(answer="B")    # guidance, no whitespace
        assert r["usage"]["prompt_tokens_details"]["cached_tokens"] == 3                                  # --enable-prompt-tokens-details
        assert post(dataclasses.replace(ends["default"], api_key="wrong"), **ASK)[0] == 401
        assert len(fake.left()) == 2
    assert fake.left() == []


def test_images_are_limited_to_what_the_paper_allows_and_only_for_models_with_eyes(fake):
    e = S.Engine("vllm", "qwen3.5-27b", vision=True)
    assert json.loads(S._vllm_command(e, "/m", 1)[S._vllm_command(e, "/m", 1).index("--limit-mm-per-prompt") + 1]) == dict(image=768, video=0)
    assert "--limit-mm-per-prompt" not in S._vllm_command(dataclasses.replace(e, vision=False), "/m", 1)
    assert "--revision" in S._vllm_command(e, "Qwen/Qwen3.5-27B", 1) and "--revision" not in S._vllm_command(e, "/m", 1)


def test_the_profiles_own_arguments_win(fake):
    cmd = S._vllm_command(S.Engine("vllm", "m", 4096, args=("--max-model-len", "512")), "/m", 1)
    assert cmd[-2:] == ["--max-model-len", "512"]


def test_cpu_build_of_vllm_is_started_by_its_module(monkeypatch):
    monkeypatch.delenv("REVEAL_VLLM", raising=False); monkeypatch.setattr(S, "find_spec", lambda n: object())
    import importlib.metadata as md
    def missing(n): raise md.PackageNotFoundError(n)
    monkeypatch.setattr(md, "version", missing)
    assert S._vllm_command(S.Engine("vllm", "m"), "/m", 1)[:5] == [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", "/m"]
    monkeypatch.setattr(md, "version", lambda n: "0.33.0")
    assert S._vllm_command(S.Engine("vllm", "m"), "/m", 1)[1:3] == ["serve", "/m"]
    monkeypatch.setattr(S, "find_spec", lambda n: None)
    with pytest.raises(InputError, match="pip install"): S._vllm_program()


def test_crash_while_loading_shows_the_end_of_the_log(fake):
    fake("crash worker chatty")
    with pytest.raises(InputError) as e:
        with S.serve(dict(default=ROLE)): pass
    first, *tail = str(e.value).splitlines()
    assert first.startswith("qwen3.5-27b on vllm: the server ended with code 1 before it was ready. Log: ") and tail[-1] == "  ValueError: No available memory for the cache blocks."
    assert len(str(e.value)) < 6000 and fake.left() == []


def test_unknown_flag_is_reported(fake):
    with pytest.raises(InputError, match="unrecognized arguments: --no-such-flag"):
        with S.serve(dict(default=ROLE | dict(serve=["--no-such-flag"]))): pass


@pytest.mark.parametrize("words", ["never stubborn", "ready=60"])
def test_never_healthy_ends_at_the_timeout(fake, words, monkeypatch):
    fake(words); monkeypatch.setattr(S.Server.__init__, "__defaults__", (0.5, -1))    # half a second of grace
    t = time.monotonic()
    with pytest.raises(InputError, match="did not answer within 1 s"):
        with S.serve(dict(default=ROLE), timeout=1): pass
    assert time.monotonic() - t < 8 and fake.left() == []


def test_another_model_on_the_port_is_refused(fake):
    fake("stranger")
    with pytest.raises(InputError, match="something else answers at http://127.0.0.1:.*another-model"):
        with S.serve(dict(default=ROLE)): pass
    assert fake.left() == []


def test_port_that_was_snatched_is_tried_once_more(fake, tmp_path):
    fake(f"taken={tmp_path/'mark'}")
    with S.serve(dict(default=ROLE)) as ends: assert post(ends["default"], **ASK)[0] == 200
    assert len(fake.pids()) == 2 and fake.left() == []


def test_stubborn_server_and_its_worker_are_killed(fake, monkeypatch):
    fake("stubborn"); monkeypatch.setattr(S.Server.__init__, "__defaults__", (0.5, -1))
    with S.serve(dict(default=ROLE)): assert len(fake.left()) == 2
    assert fake.left() == []


def test_server_is_stopped_when_the_block_raises(fake):
    fake("worker")
    with pytest.raises(ZeroDivisionError):
        with S.serve(dict(default=ROLE)): 1 / 0
    assert fake.left() == []


def test_two_users_in_one_process_share_a_server_and_the_last_one_stops_it(fake):
    with S.serve(dict(default=ROLE)) as a:
        with S.serve(dict(planner=ROLE)) as b: assert a["default"].base_url == b["planner"].base_url
        assert post(a["default"], **ASK)[0] == 200 and len(fake.pids()) == 1
    assert fake.left() == []


def test_a_server_that_died_is_replaced_for_the_next_user_and_not_stopped_by_the_first(fake):
    with S.serve(dict(default=ROLE)) as a:
        os.kill(fake.pids()[0], signal.SIGKILL)
        assert until(lambda: not any(s.alive for s, _ in S._running.values()))
        inner = S.serve(dict(default=ROLE)); b = inner.__enter__()
        assert a["default"].base_url != b["default"].base_url
    assert post(b["default"], **ASK)[0] == 200
    inner.__exit__(None, None, None)
    assert fake.left() == [] and S._running == {}


PARENT = """
    import os, sys, time
    from reveal_kit.serve import serve
    {fork}
    with serve({what!r}) as ends:
        print("ready", flush=True); {then}
"""


def parent(what, then="time.sleep(600)", fork="", wait=True):
    p = subprocess.Popen([sys.executable, "-c", textwrap.dedent(PARENT).format(what=what, then=then, fork=fork)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if wait: assert p.stdout.readline() == "ready\n", p.stderr.read()
    return p


@pytest.mark.parametrize("words", ["worker", "stubborn"])
def test_sigkill_of_the_parent_leaves_nothing(fake, words, monkeypatch):
    fake(words); fork = "import reveal_kit.serve as S; S.Server.__init__.__defaults__ = (0.5, -1)"
    p = parent(dict(default=ROLE), fork=fork)
    assert len(fake.left()) == 2
    p.kill(); p.wait()
    assert until(lambda: not fake.left()), "the server outlived its parent"


def test_sigkill_of_the_parent_while_a_forked_child_still_holds_its_pipe(fake, tmp_path):
    note = tmp_path / "child"
    p = parent(dict(default=ROLE), then=f"child = os.fork(); child and open({str(note)!r}, 'w').write(str(child)); time.sleep(600)")
    assert until(lambda: note.exists() and note.read_text())
    p.kill(); p.wait()
    try: assert until(lambda: not fake.left()), "the forked child kept the server alive"
    finally: os.kill(int(note.read_text()), signal.SIGKILL)


def _cmdline(q):
    try: return (q / "cmdline").read_bytes()
    except OSError: return b""


def test_sigkill_while_the_server_still_loads(fake):
    fake("ready=60 worker")
    p = parent(dict(default=ROLE), wait=False)
    assert until(lambda: len(fake.left()) == 2)
    p.kill(); p.wait()
    assert until(lambda: not fake.left())


def test_sigkill_of_the_keeper_kills_the_engine(fake):
    with S.serve(dict(default=ROLE)):
        s = next(iter(S._running.values()))[0]; s._p.kill(); s._p.wait()
        assert until(lambda: not fake.left(), 3) and not s.alive


def test_parent_that_ends_without_stopping_leaves_nothing(fake):
    p = parent(dict(default=ROLE), then="os._exit(0)"); p.wait()
    assert until(lambda: not fake.left())


def test_interrupt_stops_cleanly(fake):
    fake("worker"); p = parent(dict(default=ROLE)); p.send_signal(signal.SIGINT)
    assert p.wait(30) != 0 and until(lambda: not fake.left(), 2) and "KeyboardInterrupt" in p.stderr.read()


# ------------------------------------------------------------------------------------------------ llama.cpp's protocol and lock, with the stand-in

@pytest.fixture
def llama(fake, tmp_path, monkeypatch):
    "The stand-in as llama.cpp, with an empty file as model."
    monkeypatch.setattr(S, "_llama_command", lambda e, path, key: ([sys.executable, str(FAKE)], json.dumps(dict(path=path, model=e.model, key=key, context=e.context, parallel=e.parallel))))
    fake("llama"); fake.model = str(tmp_path / "tiny.gguf"); Path(fake.model).write_bytes(b"GGUF"); fake.role = dict(engine="llama.cpp", model=fake.model)
    return fake


def test_llama_reports_its_own_port_and_its_key_is_nowhere_to_be_read(llama):
    with S.serve(dict(default=llama.role | dict(context=2048, parallel=3))) as ends:
        end, s = ends["default"], next(iter(S._running.values()))[0]
        assert post(end, messages=[])[0] == 200 and len(end.api_key) == 48
        assert end.weights == zoo.sha256(llama.model) and end.context == 2048
        for pid in [*llama.left(), s._p.pid]: assert end.api_key.encode() not in _cmdline(Path(f"/proc/{pid}")) + Path(f"/proc/{pid}/environ").read_bytes()
        assert '"context": 2048, "parallel": 3' in s.log.read_text() and end.api_key not in s.log.read_text()
        assert end.api_key not in repr(s)
        assert any(os.path.basename(os.readlink(f)).startswith("reveal_kit-llama-") for f in Path(f"/proc/{llama.pids()[0]}/fd").iterdir())    # the engine itself holds the lock
    assert llama.left() == []


def test_second_process_waits_for_the_first_one_and_says_so(llama, monkeypatch, capsys):
    fork = f"import reveal_kit.serve as S; S._llama_command = lambda e, path, key: ([sys.executable, {str(FAKE)!r}], __import__('json').dumps(dict(path=path, model=e.model, key=key)))"
    p = parent(dict(default=llama.role), then="time.sleep(1)", fork=fork); first = llama.pids()
    with pytest.raises(InputError, match=rf"llama.cpp is in use by process {p.pid} \(.*tiny.gguf on llama.cpp\).*waited 0 s"):
        with S.serve(dict(default=llama.role), wait=0): pass
    with S.serve(dict(default=llama.role), wait=20) as ends:
        assert post(ends["default"], messages=[])[0] == 200 and not any(map(alive, first)), "two ran at once"
    assert f"in use by process {p.pid}" in capsys.readouterr().err and p.wait() == 0


def test_lock_is_free_once_the_killed_parents_engine_is_gone(llama):
    fork = f"import reveal_kit.serve as S; S._llama_command = lambda e, path, key: ([sys.executable, {str(FAKE)!r}], __import__('json').dumps(dict(path=path, model=e.model, key=key)))"
    p = parent(dict(default=llama.role), fork=fork); p.kill(); p.wait()
    with S.serve(dict(default=llama.role), wait=10) as ends: assert post(ends["default"], messages=[])[0] == 200 and len(llama.left()) == 1


def test_other_settings_in_the_same_process_are_refused_and_not_waited_for(llama):
    with S.serve(dict(default=llama.role)):
        t = time.monotonic()
        with pytest.raises(InputError, match="already serves"):
            with S.serve(dict(default=llama.role | dict(context=512))): pass
        assert time.monotonic() - t < 1


# ------------------------------------------------------------------------------------------------ what is planned

def test_mini_profile_starts_one_engine_and_its_stand_ins_none():
    p = Profile.load("mini")
    assert [(e.engine, e.model, e.context, e.parallel, r) for e, r in S.plan(p).items()] == [("llama.cpp", "qwen2.5-coder-1.5b-q4", 8192, 2, ["default"])]


def test_paper_vesta_starts_nothing_and_takes_its_key_from_the_environment(monkeypatch):
    p = Profile.load("paper-vesta"); assert S.plan(p) == {}
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(InputError, match="role default: set the environment variable OPENAI_API_KEY"):
        with S.serve(p): pass
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with S.serve(p) as ends: assert ends["perceiver"].api_key == "sk-test" and ends["perceiver"].model == "gpt-4o" and ends["perceiver"].vision and ends["default"].base_url == "https://api.openai.com/v1"
    assert S._running == {}


def test_keys_of_other_services_do_not_reach_an_engine(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test"); monkeypatch.setenv("MPLBACKEND", "inline")
    assert not {"OPENAI_API_KEY", "MPLBACKEND"} & set(S._engine_env()) and "PATH" in S._engine_env()


@pytest.mark.parametrize("roles, message", [
    (dict(a=dict(engine="llama.cpp", model="x.gguf"), b=dict(engine="llama.cpp", model="y.gguf")), "one llama.cpp model at a time"),
    (dict(a=ROLE | dict(serve=["--x"]), b=ROLE | dict(serve=["--y"])), "differ in `serve`"),
    (dict(a=dict(model="gpt-4o")), "no model is called 'gpt-4o'"),
    (dict(a=dict(engine="openai", model="gpt-4o")), "role a: engine openai needs a base_url"),
    (dict(a=dict(modell="x")), "unknown setting 'modell'"),
])
def test_roles_that_cannot_be_served_are_refused(roles, message):
    with pytest.raises(InputError, match=message): S.plan(roles)


def test_roles_share_an_engine_with_the_largest_needs():
    a, = S.plan(dict(a=ROLE, b=ROLE | dict(context=9000), c=ROLE | dict(parallel=4, vision=True), d=ROLE | dict(base_url="http://127.0.0.1:1/v1")))
    assert (a.context, a.parallel, a.vision) == (9000, 4, True)


def test_missing_weights_are_named_before_anything_starts(fake):
    t = time.monotonic()
    with pytest.raises(InputError, match="weights are not here. Fetch them: reveal models pull qwen2.5-coder-1.5b-q4"):
        with S.serve("qwen2.5-coder-1.5b-q4"): pass
    assert time.monotonic() - t < 2
    with pytest.raises(InputError, match="needs a .gguf file"):
        with S.serve(dict(default=dict(engine="llama.cpp", model="nothing.gguf"))): pass


def test_cores_respects_affinity():
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); from reveal_kit.serve import cores; print(cores())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "1"


def test_old_logs_are_pruned(fake):
    for i in range(30): S._new_log(S.Engine("vllm", "m")).write_text(str(i))
    assert len(list((zoo.home() / "logs").glob("*.log"))) == 20


# ------------------------------------------------------------------------------------------------ the real thing

@pytest.mark.live
@pytest.mark.skipif(not zoo.present("qwen2.5-coder-1.5b-q4"), reason="weights not here: reveal models pull mini")
def test_llama_cpp_answers_within_a_schema_and_leaves_nothing():
    with S.serve(dict(default=dict(model="qwen2.5-coder-1.5b-q4", context=1024, parallel=2)), timeout=240, wait=900) as ends:
        s = next(iter(S._running.values()))[0]; pid = s._p.pid
        status, r = post(ends["default"], messages=[dict(role="user", content="The ferry leaves at ten. When does it leave? A. at nine B. at ten. Reply as JSON.")], max_tokens=24, temperature=0,
                         response_format=dict(type="json_schema", json_schema=dict(name="a", schema=SCHEMA, strict=True)))
        assert status == 200 and json.loads(r["choices"][0]["message"]["content"])["answer"] in "AB"
        assert post(dataclasses.replace(ends["default"], api_key="wrong"), messages=[])[0] == 401
        assert post(ends["default"], messages=[dict(role="user", content="word " * 1100)], max_tokens=1)[0] == 400    # too long for one slot: an error, never a silent cut
        slots = json.loads(S._get(s.url, "/slots", s.key)[1])
        assert [x["n_ctx"] for x in slots] == [1024, 1024]                                                          # each of two requests has the whole context
    assert not alive(pid) and s.key not in s.log.read_text() and S._get(s.url, "/health")[0] == 0
