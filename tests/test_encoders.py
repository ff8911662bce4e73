"""Contracts of the papers' encoders on what can be had without a hub: MiniLM's 32-bit folder, a tiny open_clip architecture and a tiny Qwen3-VL with random weights, a test server.
All but the server's tests need the `paper` extra and are skipped without it."""
import json, random, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import numpy as np, pytest
from reveal_kit.core import InputError, home
from reveal_kit.embed import FrameEncoder, SceneEncoder, SceneView, TextEncoder, unit
from reveal_kit.encoders import ASK, BGE, STORE, EndpointScenes, QwenScenes, SigLIP, conversation, data_url, device_dtype, reach, small

rng = np.random.default_rng(3)
FILM = rng.integers(0, 256, (7, 36, 64, 3), np.uint8)
SENTENCES = ["The ferry is late.", "The boat has a delay.", "Add two eggs to the flour, then stir until it is smooth and let it rest for an hour.", ""]

def same(a, b, tol=1e-5): return a.shape == b.shape and float(np.abs(a - b).max(initial=0)) < tol
def are_units(v): return v.dtype == np.float32 and np.allclose(np.linalg.norm(v, axis=1), 1, atol=1e-4)

@pytest.fixture
def torch(): return pytest.importorskip("torch")

# ---------------------------------------------------------------- device and precision

def test_device_and_precision(torch, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_dtype() == ("cuda:0", "float16") and device_dtype("cuda:1") == ("cuda:1", "float16") and device_dtype("cpu") == ("cpu", "float32") and device_dtype("", "bfloat16") == ("cuda:0", "bfloat16")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_dtype() == ("cpu", "float32") and device_dtype("cpu", "bfloat16") == ("cpu", "bfloat16")
    with pytest.raises(InputError, match="no CUDA device"): device_dtype("cuda")
    with pytest.raises(InputError, match="dtype 'half': choose float32"): device_dtype("cpu", "half")

def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(InputError, match=r"pip install 'reveal_kit\[paper\]'"): device_dtype()

# ---------------------------------------------------------------- weights that cannot be had

HUB = dict(BGE=lambda: BGE("BAAI/bge-m3"), SigLIP=lambda: SigLIP(), Qwen=lambda: QwenScenes())

@pytest.mark.parametrize("which, how", [(w, h) for w in HUB for h in ("offline", "refused")] + [("BGE", "black hole")])
def test_unreachable_weights_fail_within_seconds_and_name_the_local_way(which, how, tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub"); from huggingface_hub import constants
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path)); monkeypatch.setattr(constants, "HF_HUB_OFFLINE", how == "offline")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9" if how == "refused" else "http://10.255.255.1")
    for k in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"): monkeypatch.delenv(k, raising=False)
    t = time.perf_counter()
    with pytest.raises(InputError, match="Give a local folder") as e: HUB[which]()
    assert time.perf_counter() - t < 8 and "weights = " in str(e.value) and "\n" not in str(e.value)

def test_a_hub_that_answers_is_believed_and_a_closed_door_is_named(tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub"); from huggingface_hub import constants
    with Server() as s:
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path)); monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False); monkeypatch.setattr(constants, "ENDPOINT", s.url)
        s.get = 200; assert reach("a/b", "Do this.") is None
        s.get = 401
        with pytest.raises(InputError, match="without a login.*401.*Do this."): reach("a/b", "Do this.")
        s.get = 500
        with pytest.raises(InputError, match="answers 500.*Do this."): reach("a/b", "Do this.")

@pytest.mark.parametrize("make", [lambda p: BGE(p), lambda p: SigLIP(weights=p), lambda p: QwenScenes(p)])
def test_a_path_that_is_not_there_is_not_looked_for_on_the_hub(make, tmp_path):
    with pytest.raises(InputError, match="does not exist. Give a local folder"): make(tmp_path / "none")
    with pytest.raises(InputError, match="does not exist. Give a local folder"): make("./models/bge-m3")

# ---------------------------------------------------------------- BGE's path over MiniLM

@pytest.fixture(scope="module")
def bge():
    pytest.importorskip("torch"); pytest.importorskip("FlagEmbedding")
    folder = home() / "models" / "minilm"
    if not (folder / "model.safetensors").is_file(): pytest.skip("minilm is not pulled")
    return BGE(folder, pooling="mean", device="cpu", dim=384)

def test_bge_contract(bge):
    v = bge.encode(SENTENCES)
    assert isinstance(bge, TextEncoder) and v.shape == (4, 384) and are_units(v) and v[0] @ v[1] > .4 > v[0] @ v[2]
    assert same(v, np.concatenate([bge.encode([t]) for t in SENTENCES])) and bge.encode([]).shape == (0, 384)
    bge.batch = 3
    try: assert same(bge.encode(SENTENCES * 5), np.tile(v, (5, 1)))
    finally: bge.batch = 32

def test_bge_agrees_with_the_int8_model_of_the_mini_profile(bge):
    from reveal_kit.embed import MiniLM
    folder = home() / "models" / "minilm-int8"
    if not (folder / "model.onnx").is_file(): pytest.skip("minilm-int8 is not pulled")
    assert ((bge.encode(SENTENCES[:3]) * MiniLM(folder).encode(SENTENCES[:3])).sum(1) > .99).all()

def test_bge_reads_long_texts_to_their_end(bge):
    head = "The harbour master counts the boats. " * 120; before = bge.long
    plain, told = bge.encode([head, head + "The bakery burns down. " * 100])
    fire = bge.encode(["a bakery on fire"])[0]
    assert bge.long == before + 2 and bge.size == 510 and told @ fire > plain @ fire + .15

def test_bge_in_half_precision(bge):
    folder = home() / "models" / "minilm"; half = BGE(folder, pooling="mean", device="cpu", dtype="bfloat16")
    v = half.encode(SENTENCES)
    assert are_units(v) and ((v * bge.encode(SENTENCES)).sum(1) > .98).all() and half.settings != bge.settings

def test_bge_refuses_another_width_and_a_folder_that_is_no_model(bge, tmp_path):
    with pytest.raises(InputError, match="gives 384 numbers per vector and the profile expects 1024"): BGE(home() / "models" / "minilm", pooling="mean", device="cpu", dim=1024)
    with pytest.raises(InputError, match="cannot be loaded: .*Give a local folder"): BGE(tmp_path, device="cpu")

# ---------------------------------------------------------------- SigLIP's path over a tiny architecture

TINY = {"embed_dim": 64, "vision_cfg": {"image_size": 64, "layers": 2, "width": 64, "head_width": 32, "patch_size": 16}, "text_cfg": {"context_length": 32, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2}}

@pytest.fixture(scope="module")
def tiny_clip(tmp_path_factory):
    torch, open_clip = pytest.importorskip("torch"), pytest.importorskip("open_clip"); d = tmp_path_factory.mktemp("clip")
    (d / "tiny-sgl.json").write_text(json.dumps(TINY)); open_clip.add_model_config(d / "tiny-sgl.json")
    torch.manual_seed(0); model = open_clip.create_model("tiny-sgl"); torch.save(model.state_dict(), d / "weights.pt")
    full = d / "folder"; full.mkdir(); torch.save(model.state_dict(), full / "open_clip_pytorch_model.bin")
    (full / "open_clip_config.json").write_text(json.dumps(dict(model_cfg=TINY, preprocess_cfg=dict(size=64, mean=[.5]*3, std=[.5]*3, interpolation="bicubic", resize_mode="squash"))))
    return d

def test_siglip_contract(tiny_clip):
    e = SigLIP("tiny-sgl", tiny_clip / "weights.pt", device="cpu", batch=3, dim=64); v = e.encode(FILM)
    assert isinstance(e, FrameEncoder) and e.searchable and v.shape == (7, 64) and are_units(v) and e.encode(FILM[:0]).shape == (0, 64)
    assert same(v, np.concatenate([e.encode(FILM[i:i+1]) for i in range(7)])) and len(np.unique(v.round(4), axis=0)) == 7
    q = e.query(["a ferry", "an egg"])
    assert q.shape == (2, 64) and are_units(q) and same(q[1:], e.query(["an egg"])) and e.query([]).shape == (0, 64)
    with pytest.raises(InputError, match="uint8 RGB"): e.encode(FILM[0])

def test_siglip_from_a_folder_as_on_the_hub(tiny_clip):
    a, b = SigLIP("tiny-sgl", tiny_clip / "folder", device="cpu"), SigLIP("tiny-sgl", tiny_clip / "weights.pt", device="cpu")
    assert a.dim == 64 and same(a.query(["x"]), b.query(["x"])) and not same(a.encode(FILM), b.encode(FILM)) # the folder says how frames are prepared, the bare file does not
    from PIL import Image
    x = a._prepare(Image.fromarray(np.full((36, 64, 3), 255, np.uint8)))
    assert x.shape == (3, 64, 64) and np.allclose(x, 1) # SigLIP's scale: white is 1

def test_a_bare_file_of_a_known_architecture_is_prepared_as_its_authors_did():
    pytest.importorskip("open_clip"); from reveal_kit.encoders import preparation
    assert preparation("ViT-L-16-SigLIP-384") == dict(image_mean=(.5,)*3, image_std=(.5,)*3, image_interpolation="bicubic", image_resize_mode="squash") and preparation("tiny-sgl") == {}

def test_siglip_shaped_model_with_timm_tower(tmp_path, tiny_clip):
    torch, open_clip = pytest.importorskip("torch"), pytest.importorskip("open_clip")
    cfg = {"embed_dim": 192, "init_logit_bias": -10, "custom_text": True, "vision_cfg": {"image_size": 224, "timm_model_name": "vit_tiny_patch16_224", "timm_model_pretrained": False, "timm_pool": "map", "timm_proj": "none"},
           "text_cfg": {"context_length": 32, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2, "no_causal_mask": True, "proj_bias": True, "pool_type": "last"}}
    (tmp_path / "tiny-map.json").write_text(json.dumps(cfg)); open_clip.add_model_config(tmp_path / "tiny-map.json"); torch.save(open_clip.create_model("tiny-map").state_dict(), tmp_path / "w.pt")
    e = SigLIP("tiny-map", tmp_path / "w.pt", device="cpu"); v = e.encode(FILM[:3])
    assert v.shape == (3, 192) and are_units(v) and same(v, np.concatenate([e.encode(FILM[i:i+1]) for i in range(3)])) and e.query(["x"]).shape == (1, 192)
    half = SigLIP("tiny-map", tmp_path / "w.pt", device="cpu", dtype="bfloat16"); h = half.encode(FILM[:3])
    assert are_units(h) and ((h * v).sum(1) > .98).all() and are_units(half.query(["x"]))

def test_siglip_never_goes_on_with_random_weights(tiny_clip, tmp_path):
    (tmp_path / "open_clip_config.json").write_bytes((tiny_clip / "folder" / "open_clip_config.json").read_bytes())
    with pytest.raises(InputError, match="cannot be loaded: .*Give a local folder or file"): SigLIP("tiny-sgl", tmp_path, device="cpu")
    (tmp_path / "w.pt").write_bytes(b"not weights")
    with pytest.raises(InputError, match="cannot be loaded: .*Give a local folder or file"): SigLIP("tiny-sgl", tmp_path / "w.pt", device="cpu")
    with pytest.raises(InputError, match="gives 64 numbers per vector and the profile expects 1024"): SigLIP("tiny-sgl", tiny_clip / "weights.pt", device="cpu", dim=1024)

def test_siglip_settings_change_with_the_weights(tiny_clip):
    torch, open_clip = pytest.importorskip("torch"), pytest.importorskip("open_clip")
    a = SigLIP("tiny-sgl", tiny_clip / "weights.pt", device="cpu"); torch.manual_seed(1); torch.save(open_clip.create_model("tiny-sgl").state_dict(), tiny_clip / "other.pt")
    assert SigLIP("tiny-sgl", tiny_clip / "other.pt", device="cpu").settings != a.settings == SigLIP("tiny-sgl", tiny_clip / "weights.pt", device="cpu").settings

# ---------------------------------------------------------------- Qwen3-VL through transformers

@pytest.fixture(scope="module")
def tiny_qwen(tmp_path_factory):
    "A folder with a random Qwen3-VL of 64 numbers, its tokenizer, its chat template and its image processor."
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers"); d = tmp_path_factory.mktemp("qwen") / "tiny-qwen3vl"; d.mkdir()
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
    t = Tokenizer(models.BPE()); t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False); t.decoder = decoders.ByteLevel()
    r = random.Random(0); words = "the a of to in is it scene video frame boat ferry egg flour text image".split()
    t.train_from_iterator([" ".join(r.choices(words, k=30)) for _ in range(200)], trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.save(str(d / "tokenizer.json")); n = t.get_vocab_size(); ids = {k: t.token_to_id(f"<|{v}|>") for k, v in dict(image_token_id="image_pad", video_token_id="video_pad", vision_start_token_id="vision_start", vision_end_token_id="vision_end").items()}
    chat = "{%- for m in messages %}<|im_start|>{{ m.role }}\n{% for c in m.content %}{% if c.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    (d / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="PreTrainedTokenizerFast", model_max_length=4096, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=chat))); (d / "chat_template.jinja").write_text(chat)
    see = dict(patch_size=16, temporal_patch_size=2, merge_size=2, image_mean=[.5]*3, image_std=[.5]*3, processor_class="Qwen3VLProcessor")
    (d / "preprocessor_config.json").write_text(json.dumps(see | dict(size=dict(shortest_edge=56*56, longest_edge=224*224), image_processor_type="Qwen2VLImageProcessor")))
    (d / "video_preprocessor_config.json").write_text(json.dumps(see | dict(size=dict(shortest_edge=64*64, longest_edge=16*224*224), video_processor_type="Qwen3VLVideoProcessor")))
    config = transformers.Qwen3VLConfig(**ids, text_config=dict(vocab_size=n, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=32, max_position_embeddings=4096,
        pad_token_id=0, rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[6, 5, 5], mrope_interleaved=True)),
        vision_config=dict(depth=2, hidden_size=64, intermediate_size=128, num_heads=2, out_hidden_size=64, patch_size=16, spatial_merge_size=2, temporal_patch_size=2, num_position_embeddings=64, deepstack_visual_indexes=[0]))
    torch.manual_seed(0); model = transformers.Qwen3VLForConditionalGeneration(config)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim >= 2: p.normal_(0, 1.5 / (p.shape[-1] if p.ndim == 2 else p[0].numel()) ** .5)
    model.save_pretrained(d); return d

SCENES = [SceneView(FILM[:2], "The ferry is late.", "HARBOUR"), SceneView(FILM[2:6], ""), SceneView(None, "Add two eggs to the flour."), SceneView(FILM[:2], "Nothing of the kind."), SceneView()]

def test_qwen_contract(tiny_qwen):
    e = QwenScenes(tiny_qwen, device="cpu", batch=2, dim=64); v = e.encode(SCENES)
    assert isinstance(e, SceneEncoder) and v.shape == (5, 64) and are_units(v) and e.encode([]).shape == (0, 64)
    assert same(v, np.concatenate([e.encode([s]) for s in SCENES]), 1e-4) # padding of a batch does not reach the pooled token
    assert abs(v[0] @ v[3]) < .999 and abs(v[0] @ v[1]) < .999              # words count, and pictures count
    q = e.query(["where is the ferry?"])
    assert q.shape == (1, 64) and are_units(q) and not same(q, e.encode([SceneView(speech="where is the ferry?")])) # asked and stored under different instructions

def test_qwen_pools_the_last_token_of_the_conversation(tiny_qwen):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    text = f"<|im_start|>system\n{ASK}<|im_end|>\n<|im_start|>user\nthe ferry<|im_end|>\n<|im_start|>assistant\n"
    tok, model = transformers.AutoTokenizer.from_pretrained(tiny_qwen), transformers.AutoModel.from_pretrained(tiny_qwen, dtype=torch.float32).eval()
    with torch.no_grad(): h = model(**tok([text], return_tensors="pt")).last_hidden_state[:, -1]
    assert same(QwenScenes(tiny_qwen, device="cpu").query(["the ferry"]), unit(h.numpy()), 1e-4)

def test_qwen_refusals(tiny_qwen, tmp_path):
    with pytest.raises(InputError, match="gives 64 numbers per vector and the profile expects 2048"): QwenScenes(tiny_qwen, device="cpu", dim=2048)
    with pytest.raises(InputError, match="cannot be loaded: .*Give a local folder"): QwenScenes(tmp_path, device="cpu")
    with pytest.raises(InputError, match="tokens, and 50 are allowed"): QwenScenes(tiny_qwen, device="cpu", size=50).query(["egg " * 100])
    half = QwenScenes(tiny_qwen, device="cpu", dtype="bfloat16")
    assert are_units(half.encode(SCENES[:2])) and half.settings["dtype"] == "bfloat16"

# ---------------------------------------------------------------- an embeddings server

class Server:
    "Answers like vLLM's embeddings endpoint: the vector says how many images and characters came; `say` replaces the next answers."
    def __init__(self): self.seen, self.keys, self.say, self.get, self.busy, self.most, self.pause, self._lock = [], [], [], 200, 0, 0, 0.0, threading.Lock()
    def __enter__(self):
        outer = self
        class H(BaseHTTPRequestHandler):
            def log_message(self, *a): pass
            def reply(self, code, body):
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(code); self.send_header("Content-Length", str(len(raw))); self.end_headers(); self.wfile.write(raw)
            def do_GET(self): self.reply(outer.get, {})
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer._lock:
                    outer.seen.append((self.path, body)); outer.keys.append(self.headers["Authorization"]); outer.busy += 1; outer.most = max(outer.most, outer.busy); special = outer.say.pop(0) if outer.say else None
                time.sleep(outer.pause); parts = body["messages"][1]["content"]
                try: self.reply(*special) if special else self.reply(200, dict(data=[dict(embedding=[sum(p["type"] == "image_url" for p in parts), sum(len(p.get("text", "")) for p in parts), 1.0])]))
                finally: outer.busy -= 1
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), H); self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start(); return self
    def __exit__(self, *e): self.http.shutdown(); self.http.server_close()

@pytest.fixture
def server():
    with Server() as s: yield s

def test_endpoint_request_shape_and_vectors(server):
    e = EndpointScenes("qwen3-vl", server.url + "/v1/", "sk-4711", dim=3); v = e.encode(SCENES)
    assert isinstance(e, SceneEncoder) and np.allclose(v, unit([[2, len("The ferry is late.\nHARBOUR"), 1], [4, 0, 1], [0, 26, 1], [2, 20, 1], [0, 4, 1]])) and e.encode([]).shape == (0, 3)
    path, body = next(x for x in server.seen if "HARBOUR" in json.dumps(x[1]))
    assert path == "/v1/embeddings" and set(body) == {"model", "messages", "add_generation_prompt", "encoding_format"} and body["add_generation_prompt"] is True and body["model"] == "qwen3-vl"
    assert body["messages"][0] == dict(role="system", content=[dict(type="text", text=STORE)]) and set(server.keys) == {"Bearer sk-4711"} and "4711" not in repr(e) and "4711" not in json.dumps(e.settings)
    image, _, words = body["messages"][1]["content"]
    import base64, cv2
    head, _, data = image["image_url"]["url"].partition(",")
    back = cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), cv2.IMREAD_COLOR)
    assert head == "data:image/jpeg;base64" and back.shape == (36, 64, 3) and words["text"].endswith("HARBOUR")
    e.query(["where?"]); assert server.seen[-1][1]["messages"] == conversation(ASK, [], "where?")

def test_endpoint_keeps_order_and_asks_several_at_once(server):
    server.pause = .05; e = EndpointScenes("m", server.url, dim=3, batch=4)
    v = e.query(["x" * n for n in range(1, 13)])
    assert np.allclose(v, unit([[0, n, 1] for n in range(1, 13)])) and 2 <= server.most <= 4

def test_endpoint_of_another_dimension_is_refused_with_both(server):
    with pytest.raises(InputError, match="gives 3 numbers per vector and the profile expects 2048"): EndpointScenes("m", server.url).query(["x"])
    assert EndpointScenes("m", server.url, dim=0).dim == 3

@pytest.mark.parametrize("answer, message", [
    ((200, b"<html>"), "no embedding.*runner pooling"), ((200, {"choices": []}), "no embedding"), ((200, {"data": [{"embedding": ["a"]}]}), "no embedding"), ((200, {"data": [{"embedding": [1.0, float("nan"), 0.0]}]}), "not a row of finite numbers"),
    ((404, {"error": "The model `m` does not exist."}), "refuses the request .404.*does not exist"), ((401, {}), "refuses the request .401.*key"), ((400, {"error": "too long"}), "too long")])
def test_endpoint_that_answers_badly(server, answer, message):
    server.say = [answer]
    with pytest.raises(InputError, match=message) as e: EndpointScenes("m", server.url, dim=3).query(["x"])
    assert "\n" not in str(e.value) and len(server.seen) == 1

def test_endpoint_that_is_busy_once_is_asked_again_and_one_that_stays_so_is_named(server, monkeypatch):
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda s: None)
    server.say = [(503, {}), (500, {})]
    assert EndpointScenes("m", server.url, dim=3).query(["x"]).shape == (1, 3) and len(server.seen) == 3
    server.say = [(503, b"loading")] * 3
    with pytest.raises(InputError, match="answers 503.*loading"): EndpointScenes("m", server.url, dim=3).query(["x"])

def test_endpoint_that_is_not_there(monkeypatch):
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda s: None)
    with pytest.raises(InputError, match="no answer from the embeddings endpoint .ConnectError"): EndpointScenes("m", "http://127.0.0.1:9/v1", dim=3).query(["x"])
    with pytest.raises(InputError, match="needs base_url"): EndpointScenes("m", "")

def test_small_keeps_the_shape_of_the_picture():
    assert small(np.zeros((720, 1280, 3), np.uint8)).shape == (432, 768, 3) and small(np.zeros((3000, 10, 3), np.uint8)).shape == (768, 3, 3) and data_url(FILM[0]) == data_url(FILM[0])
