"Profiles: what is shipped, what a user's file may say, and what a wrong one gets."
import json
import re
import subprocess
import sys
import tomllib
import pytest
from reveal_kit.core import InputError, root
from reveal_kit.profiles import ENCODERS, ROLES, Encoder, Profile, RevealSpec, Role, VestaSpec, names

def write(tmp_path, text): p = tmp_path / "own.toml"; p.write_text(text, encoding="utf-8"); return p

def refused(tmp_path, text, *parts):
    with pytest.raises(InputError) as e: Profile.load(write(tmp_path, text))
    line = str(e.value); assert "\n" not in line and line.startswith(str(tmp_path / "own.toml") + ": "), line
    for p in parts: assert p in line, (p, line)
    return line

def test_the_four_are_shipped(): assert names() == ["mini", "open-vesta", "paper-reveal", "paper-vesta"]

@pytest.mark.parametrize("name", ["mini", "open-vesta", "paper-reveal", "paper-vesta"])
def test_each_shipped_profile_is_whole(name):
    p = Profile.load(name)
    assert p.name == name and p.title and all(p.role(r).model or not p.role(r).chats for r in ROLES)
    json.dumps(p.settings(), allow_nan=False)

def test_who_plays_what():
    mini, reveal, vesta, free = (Profile.load(n) for n in ("mini", "paper-reveal", "paper-vesta", "open-vesta"))
    assert {r: mini.role(r).engine for r in ROLES} == {r: {"captioner": "narrator", "perceiver": "ocr"}.get(r, "llama.cpp") for r in ROLES}
    assert (mini.text_encoder.engine, mini.frame_encoder.engine, mini.scene_encoder.engine, mini.transcriber.model) == ("minilm", "descriptor", "words", "whisper-base")
    assert all(reveal.role(r).model == "qwen3.5-27b" and reveal.role(r).vision for r in ROLES)
    assert (reveal.text_encoder.model, reveal.frame_encoder.arch, reveal.scene_encoder.engine, reveal.transcriber.engine) == ("bge-m3", "ViT-L-16-SigLIP-384", "none", "subtitles")
    assert (vesta.role("router").model, vesta.role("reasoner").model, vesta.role("perceiver").model) == ("o3", "o3", "gpt-4o") and vesta.role("perceiver").vision
    assert vesta.scene_encoder.dim == 2048 == free.scene_encoder.dim and vesta.transcriber.model == "whisper-large-v3" and all(free.role(r).engine == "vllm" for r in ROLES)

def test_the_papers_constants():
    r, v = RevealSpec(), VestaSpec()
    assert (r.K, r.tau, r.rate, r.theta, r.group, r.l2_words, r.l3_words) == (3, .7, 1, .8, 12, 120, 300)
    assert (r.top_l1, r.top_l2, r.top_l3, r.rerank, r.dedup, r.jaccard, r.cosine_evidence) == (8, 4, 2, 8, .9, .9, .7)
    assert (r.subquestions, r.query_words, r.repair_queries, r.aggregate, r.score_mode, r.long_video, r.frame_rate, r.frame_cap) == ((2, 4), 15, 4, "max", "hard", 600, 1, 768)
    assert (v.scene_threshold, v.scene_min, v.scene_max, v.scene_frames, v.K, v.pool, v.separation, v.hypotheses, v.N, v.inspect_frames, v.clip_frames) == (27, 5, 60, 4, 6, 15, 20, 6, 15, 150, 50)
    for n in ("paper-reveal", "paper-vesta", "open-vesta"): assert Profile.load(n).reveal == r and Profile.load(n).vesta == v

def test_mini_changes_only_what_it_explains():
    text = (root() / "reveal_kit/assets/profiles/mini.toml").read_text()
    for table in ("reveal", "vesta"):
        for key in tomllib.loads(text).get(table, {}): assert re.search(rf"^{key} = .*# \w.{{20}}", text, re.M), f"{table}.{key} has no reason beside it"

def test_the_code_that_implements_a_constant_has_the_same_default():
    "A profile's default and the default of the function that uses it must not drift apart."
    from reveal_kit import policies, router, snapshot
    v = VestaSpec()
    assert (policies.K, policies.ALPHA, policies.POOL, policies.SEPARATION, policies.HYPOTHESES) == (v.K, v.alpha, v.pool, v.separation, v.hypotheses)
    assert router.CONFIDENT == v.confident and snapshot.LIMIT == v.ledger_chars

def test_minis_theta_is_the_descriptors():
    from reveal_kit.embed import Descriptor
    assert Profile.load("mini").reveal.theta == Descriptor.theta

def test_every_field_is_explained():
    for spec in (Role, Encoder, RevealSpec, VestaSpec, Profile):
        for k, f in spec.model_fields.items(): assert f.description and "\n" not in f.description, (spec.__name__, k)
    for spec in (RevealSpec, VestaSpec):
        for k, f in spec.model_fields.items(): assert re.search(r"\((.*\d.*)\)|open|no bound|B\.\d", f.description), (k, "says neither its section nor that it is open")

def test_roles_fall_back_to_default(tmp_path):
    p = Profile.load(write(tmp_path, 'name = "x"\n[roles.default]\nmodel = "a"\n[roles.verifier]\nmodel = "b"\n'))
    assert p.role("verifier").model == "b" and p.role("planner").model == "a" and p.role("default").model == "a"
    with pytest.raises(InputError, match="no role 'critic': roles are captioner"): p.role("critic")

def test_profiles_do_not_change():
    p = Profile.load("mini")
    with pytest.raises(ValueError): p.name = "x"
    with pytest.raises(ValueError): p.reveal.tau = .1

def test_extends_lays_over_but_never_mixes_two_models(tmp_path):
    p = Profile.load(write(tmp_path, 'extends = "paper-vesta"\nname = "own"\n[roles.perceiver]\nmax_tokens = 9\n[roles.default]\nengine = "llama.cpp"\nmodel = "m"\n[vesta]\nN = 20\n'))
    assert p.role("perceiver").model == "gpt-4o" and p.role("perceiver").max_tokens == 9 # no engine named: laid over
    assert p.role("default").base_url == "" and p.role("default").context == 8192       # engine named: stands alone
    assert p.vesta.N == 20 and p.vesta.K == 6 and p.scene_encoder.dim == 2048

@pytest.mark.parametrize("text, parts", [
    ('extends = "mini"\n[reveal]\ntua = 0.9', ["there is no field reveal.tua", "tau?"]),
    ('extends = "mini"\n[revael]\ntau = 0.9', ["there is no field revael", "reveal?"]),
    ('extends = "mini"\n[roles.planer]\nmodel = "x"', ["there is no field roles.planer", "planner?"]),
    ('extends = "mini"\n[roles.planner]\nmodle = "x"', ["roles.planner.modle", "model?"]),
    ('extends = "mini"\n[text_encoder]\nbacth = 3', ["text_encoder.bacth", "batch?"]),
    ('extends = "mini"\n[reveal]\ntau = 1.5', ["reveal.tau", "less than or equal to 1"]),
    ('extends = "mini"\n[reveal]\ntau = nan', ["reveal.tau", "finite"]),
    ('extends = "mini"\n[reveal]\nK = 0', ["reveal.K", "greater than or equal to 1"]),
    ('extends = "mini"\n[reveal]\nscore_mode = "loud"', ["reveal.score_mode", "'hard' or 'soft'"]),
    ('extends = "mini"\n[reveal]\ntau = "high"', ["reveal.tau", "number"]),
    ('extends = "mini"\n[vesta]\nscene_min = 90', ["vesta", "scene_min 90.0 exceeds scene_max 60.0"]),
    ('extends = "mini"\n[roles.planner]\nengine = "openai"\nmodel = "o3"', ["roles.planner", "needs a base_url"]),
    ('extends = "mini"\n[roles.planner]\nengine = "vllm"', ["roles.planner", "needs a model"]),
    ('extends = "mini"\n[roles.planner]\nengine = "magic"\nmodel = "x"', ["roles.planner.engine", "llama.cpp"]),
    ('name = "x"\n[roles.planner]\nmodel = "m"', ["[roles.default] is missing", "captioner"]),
    ('name = "x"', ["roles: is missing"]),
    ('[roles.default]\nmodel = "m"', ["name: is missing"]),
    ('extends = "mini"\nname = "../x"', ["name:", "pattern"]),
    ('extends = "maxi"', ["extends = 'maxi'", "mini, open-vesta"]),
    ('name = ', ["not a TOML file"]),
    ('roles = 3\nname = "x"', ["roles:", "dictionary"]),
])
def test_a_wrong_file_gets_one_line_with_file_and_field(tmp_path, text, parts):
    refused(tmp_path, text, *parts)

def test_a_key_in_a_profile_is_refused_and_not_repeated(tmp_path):
    line = refused(tmp_path, 'extends = "mini"\n[roles.planner]\nengine = "openai"\nmodel = "o3"\nbase_url = "http://x/v1"\napi_key_env = "sk-proj-4711secret"', "NAME of an environment variable")
    assert "4711" not in line
    line = refused(tmp_path, 'extends = "mini"\n[roles.planner]\nengine = "openai"\nmodel = "o3"\nbase_url = "http://me:4711secret@x/v1"', "base_url must hold no user name")
    assert "4711" not in line
    line = refused(tmp_path, 'extends = "mini"\n[roles.planner]\nmodel = "o3"\n[roles.planner.extra]\napi_key = "4711secret"', "extra holds api_key")
    assert "4711" not in line

def test_unknown_missing_and_unreadable_files(tmp_path):
    with pytest.raises(InputError, match="no profile 'huge': choose one of mini, open-vesta, paper-reveal, paper-vesta"): Profile.load("huge")
    with pytest.raises(InputError, match="cannot read this profile"): Profile.load(tmp_path / "none.toml")
    (tmp_path / "d.toml").mkdir()
    with pytest.raises(InputError, match="cannot read this profile"): Profile.load(tmp_path / "d.toml")
    (tmp_path / "l.toml").write_bytes(b'title = "\xff"')
    with pytest.raises(InputError, match="not a TOML file"): Profile.load(tmp_path / "l.toml")
    with pytest.raises(InputError, match="no profile '../mini'"): Profile.load("../mini")

def test_settings_hold_what_shapes_results_and_nothing_else(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-4711")
    s = json.dumps(Profile.load("paper-vesta").settings())
    assert "4711" not in s and "OPENAI" not in s and "base_url" not in s and '"o3"' in s and '"scene_threshold": 27.0' in s
    assert "data/mini" not in json.dumps(Profile.load("mini").settings())
    a, b = Profile.load("mini"), Profile.load("mini")
    assert a.settings() == b.settings() and a.model_copy(update=dict(reveal=RevealSpec(tau=.8))).settings() != a.settings()

def test_encoders_are_built_and_checked(tmp_path):
    mini = Profile.load("mini")
    assert mini.encoder("frame_encoder").name == "descriptor" and Profile.load("paper-vesta").encoder("text_encoder") is None
    with pytest.raises(InputError, match="there is no encoder 'frames': encoders are"): mini.encoder("frames")
    p = Profile.load(write(tmp_path, 'extends = "mini"\n[frame_encoder]\nengine = "descriptor"\ndim = 7\n'))
    with pytest.raises(InputError, match="frame_encoder.dim is 7, and descriptor gives 1956"): p.encoder("frame_encoder")
    p = Profile.load(write(tmp_path, f'extends = "mini"\n[text_encoder]\nengine = "minilm"\nweights = "{tmp_path}"\n'))
    with pytest.raises(InputError, match="model.onnx is missing"): p.encoder("text_encoder")

def test_missing_weights_name_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("REVEAL_HOME", str(tmp_path)); monkeypatch.delenv("REVEAL_MODELS", raising=False)
    with pytest.raises(InputError, match="reveal models pull minilm-int8"): Profile.load("mini").encoders()

def test_describe_says_who_is_here(tmp_path, monkeypatch):
    monkeypatch.setenv("REVEAL_HOME", str(tmp_path)); monkeypatch.delenv("REVEAL_MODELS", raising=False); monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    rows = {r["role"]: r for r in Profile.load("mini").describe()}
    assert list(rows) == ["default", "captioner", "perceiver", *ENCODERS] and set(rows["default"]) == {"role", "model", "where", "present"}
    assert {r: rows[r]["present"] for r in ("default", "captioner", "text_encoder", "frame_encoder", "scene_encoder")} == dict(default=False, captioner=True, text_encoder=False, frame_encoder=True, scene_encoder=False)
    far = {r["role"]: r["present"] for r in Profile.load("paper-vesta").describe()}
    monkeypatch.setenv("OPENAI_API_KEY", "sk-4711")
    near = {r["role"]: r["present"] for r in Profile.load("paper-vesta").describe()}
    assert (far["default"], near["default"]) == (False, True) and "4711" not in Profile.load("paper-vesta")._repr_markdown_()

def test_import_is_quick_and_loads_no_model_library():
    code = "import sys, time; t = time.process_time(); import reveal_kit.profiles; d = time.process_time() - t; print(d, [m for m in ('torch','onnxruntime','cv2','faiss','av','faster_whisper','openai','pandas') if m in sys.modules])"
    best = 9
    for _ in range(3):
        s, _, mods = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.partition(" ")
        assert mods.strip() == "[]"; best = min(best, float(s))
    assert best < .5, best


def test_as_many_questions_at_once_as_the_servers_take():
    assert Profile.load("mini").workers == 1, "two slots of llama.cpp share two cores: one question at a time"
    assert Profile.load("paper-reveal").workers == 16 and Profile.load("paper-vesta").workers == 8
