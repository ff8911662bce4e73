"""A stand-in for an OpenAI-compatible chat server, for tests, benchmarks and rehearsals: no model, every behaviour scripted.

    with ChatServer(lambda request: '{"answer": "B"}') as server: ...    # server.url, server.count, server.requests, server.images

`answer` may be a function of the request body, one reply, or a list of replies (one per request, the last repeats); a reply is a string, a dict or list (sent as JSON
text), or a `Say`, which can also fail in the ways servers fail. Without `answer` the server plays any role: it writes a schema-valid reply that depends on the request alone.
Run `python -m tests.chat_server --port 8000` for one that outlives a test, or `with spawn("--latency", "0.05") as url` for one in a process of its own.
"""
import argparse, asyncio, base64, binascii, hashlib, json, math, random, re, subprocess, sys, threading, time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Say:
    "One reply, good or bad."
    text: str | None = ""              # the message's content; None is what a server sends when the model only thought
    finish: str = "stop"
    delay: float = 0.0                 # seconds before anything is sent
    status: int = 200
    headers: dict = field(default_factory=dict)   # e.g. {"Retry-After": "1"}
    body: object = None                # sent instead of a chat completion: bytes or str as they are, anything else as JSON
    hang: bool = False                 # never answer
    drop: str = ""                     # close the connection: "before" anything is sent, or in the "middle" of the reply
    drip: float = 0.0                  # seconds between single bytes
    usage: dict | None = None          # overrides the counted usage
    tokens: list | None = None         # logprobs content: (text, logprob, [(text, logprob), …]); default made from the text
    message: dict = field(default_factory=dict)   # more fields of the message, e.g. {"reasoning": "…"}


# ------------------------------------------------------------------------------------------------ replies that fit a schema

def from_schema(schema, rng, root=None, depth=0):
    "A value that `schema` admits, chosen by `rng`: the part of JSON Schema that pydantic writes, `$ref` included."
    root = root or schema
    if "$ref" in schema:
        node = root
        for part in schema["$ref"].lstrip("#/").split("/"): node = node[part]
        return from_schema(node, rng, root, depth + 1)
    if "const" in schema: return schema["const"]
    if "enum" in schema: return rng.choice(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            options = schema[key] if depth < 8 else [o for o in schema[key] if o.get("type") == "null"] or schema[key]
            return from_schema(rng.choice(options), rng, root, depth + 1)
    if "allOf" in schema and "type" not in schema: return from_schema(schema["allOf"][0], rng, root, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list): kind = rng.choice(kind)
    if kind == "object":
        out = {k: from_schema(v, rng, root, depth + 1) for k, v in schema.get("properties", {}).items()}
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict) and not out and depth < 8: out = {k: from_schema(extra, rng, root, depth + 1) for k in "ab"[:max(1, schema.get("minProperties", 1))]}
        return out
    if kind == "array":
        low, high = schema.get("minItems", 0), schema.get("maxItems", max(2, schema.get("minItems", 0)))
        n = low if depth > 8 else rng.randint(low, min(high, low + 3))
        fixed = [from_schema(s, rng, root, depth + 1) for s in schema.get("prefixItems", [])]
        items, seen = schema.get("items", {}) or {}, []
        for _ in range(20 * n):
            if len(fixed) + len(seen) >= n: break
            v = from_schema(items, rng, root, depth + 1)
            if not (schema.get("uniqueItems") and v in seen): seen.append(v)
        return fixed + seen
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0)); high = schema.get("maximum", schema.get("exclusiveMaximum", low + 100))
        if kind == "integer":
            low, high = math.ceil(low) + ("exclusiveMinimum" in schema and low == math.ceil(low)), math.floor(high) - ("exclusiveMaximum" in schema and high == math.floor(high))
            step = schema.get("multipleOf", 1); return rng.randint(-(-low // step), high // step) * step
        return round(low + (high - low) * rng.uniform(0.01, 0.99), 3)
    if kind == "boolean": return rng.random() < 0.5
    if kind == "null": return None
    words = "the ferry leaves the harbour at ten with four red boxes and a letter for the baker".split()
    if schema.get("format") in ("date", "date-time"): return "2026-01-02" + ("T03:04:05Z" if schema["format"] == "date-time" else "")
    text = " ".join(rng.sample(words, 5)); low, high = schema.get("minLength", 0), schema.get("maxLength", 10**6)
    if "pattern" in schema:   # simple patterns only: a few guesses, then the plain text
        for guess in (text, text.split()[0], "A", "1", "0.5", "1:05", "", "q1", "L1/0001"):
            if re.search(schema["pattern"], guess) and low <= len(guess) <= high: return guess
    return (text + " x" * low)[:max(low, min(len(text), high))] if low > len(text) else text[:high]


def seeded(request):
    "A random generator that depends on what was asked and on nothing else."
    ask = {k: request.get(k) for k in ("model", "messages", "response_format", "seed")}
    return random.Random(hashlib.sha256(json.dumps(ask, sort_keys=True).encode()).digest())


def play(request):
    "The reply of a server without a script: valid under the request's schema, the same for the same request."
    rng, form = seeded(request), request.get("response_format") or {}
    if form.get("type") == "json_schema": return json.dumps(from_schema(form["json_schema"]["schema"], rng), separators=(", ", ": "))
    if form.get("type") == "json_object": return "{}"
    return from_schema(dict(type="string"), rng).capitalize() + "."


def letters(letter="A"):
    "A script that answers every question with one letter, wherever the schema has room for a letter, and is otherwise schema-valid."
    def answer(request):
        schema = ((request.get("response_format") or {}).get("json_schema") or {}).get("schema")
        if not schema: return letter
        value = from_schema(schema, seeded(request))
        for k, v in schema.get("properties", {}).items():
            if letter in (v.get("enum") or []): value[k] = letter
        return json.dumps(value)
    return answer


# ------------------------------------------------------------------------------------------------ tokens

def split_tokens(text):
    "Words with their leading space, single digits and single marks: close to how Qwen's tokenizer cuts JSON."
    return re.findall(r" ?[^\W\d_]+|\d|\s+|[^\w\s]|_", text)


def with_logprobs(tokens, top):
    "Log-probability entries for `tokens`: each takes 0.7, the rest goes to neighbours of the same kind (other digits for a digit, other letters for a letter)."
    out = []
    for t in tokens:
        pool = "0123456789" if t.isdigit() else "ABCDEFGH" if len(t) == 1 and t.isalpha() else ", } .".split()
        others = [p for p in pool if p != t][:max(0, top - 1)]
        out.append((t, math.log(0.7), [(t, math.log(0.7))] + [(o, math.log(0.3 / 2**(i + 1))) for i, o in enumerate(others)]))
    return out


def logprob_json(tokens, top):
    entry = lambda t, p: dict(token=t, logprob=p, bytes=list(t.encode()))
    return dict(content=[dict(entry(t, p), top_logprobs=[entry(*x) for x in alts[:top]]) for t, p, alts in tokens])


# ------------------------------------------------------------------------------------------------ the server

class ChatServer:
    "A loopback HTTP server in a thread of its own; a context manager."
    def __init__(self,
        answer=None,              # function of the request body, a reply, a list of replies, or None: schema-valid replies
        *,
        latency=0.0,              # seconds before every reply
        port=0,
        model="test-model",
        api_key=None,             # demanded as `Authorization: Bearer …` when set
        context=None,             # tokens; longer prompts get the 400 that `style` servers send
        style="llama.cpp",        # or "vllm"
        vision=True,
        max_images=None,
        keep=True,                # record request bodies; False for benchmarks
        dim=16,                   # of the embeddings endpoint
    ):
        self.answer, self.latency, self.port, self.model, self.api_key, self.context, self.style = answer, latency, port, model, api_key, context, style
        self.vision, self.max_images, self.keep, self.dim = vision, max_images, keep, dim
        self.requests, self.images, self.count, self.open, self.peak, self.connections = [], [], 0, 0, 0, 0
        self.headers = []                       # of each recorded request
        self._prompts, self._ready, self._links = [], threading.Event(), set()

    @property
    def url(self): return f"http://127.0.0.1:{self.port}/v1"

    def start(self):
        self._thread = threading.Thread(target=self._run, daemon=True); self._thread.start()
        if not self._ready.wait(10): raise RuntimeError("the test server did not start")
        if self._failed: raise self._failed
        return self

    def stop(self):
        if self._thread.is_alive(): self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    def __enter__(self): return self.start()
    def __exit__(self, *_): self.stop()

    _failed = None
    def _run(self):
        try: asyncio.run(self._serve())
        except OSError as e: self._failed = e; self._ready.set()

    async def _serve(self):
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await self._loop.create_server(lambda: _Link(self), "127.0.0.1", self.port, backlog=512)
        self.port = server.sockets[0].getsockname()[1]; self._ready.set()
        await self._end.wait()
        server.close()
        for link in list(self._links): link.abort()

    # what one request gets: bytes to send after how long, or None for never
    def respond(self, method, path, headers, body):
        if method == "GET":
            if path in ("/health", "/v1/health"): return Say(body={"status": "ok"})
            if path == "/v1/models": return Say(body={"object": "list", "data": [{"id": self.model, "object": "model"}]})
            return Say(status=404, body={"error": {"message": f"no such path {path}", "code": 404}})
        if self.api_key and headers.get("authorization") != f"Bearer {self.api_key}":
            return Say(status=401, body={"error": {"message": "Invalid API Key", "type": "authentication_error", "code": 401}})
        try: request = json.loads(body)
        except ValueError: return Say(status=400, body={"error": {"message": "the request is not JSON", "code": 400}})
        if path == "/v1/embeddings": return self.embed(request)
        if path != "/v1/chat/completions": return Say(status=404, body={"error": {"message": f"no such path {path}", "code": 404}})
        self.count += 1
        if self.keep: self.requests.append(request); self.headers.append(headers)
        problem = self.check(request)
        if problem: return problem
        say = self.scripted(request)
        say = say if isinstance(say, Say) else Say(text=say if isinstance(say, str) else json.dumps(say))
        if say.status != 200 and say.body is None: say = Say(**{**vars(say), "body": {"error": {"message": say.text or f"scripted {say.status}", "code": say.status}}})
        return say

    def scripted(self, request):
        a = self.answer
        if a is None: return play(request)
        if callable(a): return a(request)
        if isinstance(a, list): return a[min(self.count, len(a)) - 1]
        return a

    def check(self, request):
        "A `Say` that refuses what a real server would refuse, or None."
        bad = lambda text, **more: Say(status=400, body={"error": dict(message=text, type="BadRequestError", code=400, **more)})
        if request.get("model") != self.model and self.style == "vllm": return Say(status=404, body={"error": {"message": f"The model `{request.get('model')}` does not exist.", "code": 404}})
        messages = request.get("messages")
        if not isinstance(messages, list) or not messages: return bad("messages must be a list that is not empty")
        found = []
        for m in messages:
            if not isinstance(m, dict) or m.get("role") not in ("system", "user", "assistant", "tool"): return bad(f"bad message {str(m)[:80]}")
            for part in m["content"] if isinstance(m.get("content"), list) else []:
                if part.get("type") == "text": continue
                if part.get("type") != "image_url": return bad(f"unknown content part {part.get('type')!r}")
                got = re.fullmatch(r"data:(image/\w+);base64,(.*)", part["image_url"]["url"], re.S)
                if not got: return bad("an image must be a data URL")
                try: data = base64.b64decode(got[2], validate=True)
                except binascii.Error as e: return bad(f"bad base64: {e}")
                magic = {"image/jpeg": b"\xff\xd8\xff", "image/png": b"\x89PNG", "image/webp": b"RIFF"}.get(got[1])
                if not magic or not data.startswith(magic): return bad(f"the image is not {got[1]}")
                found.append(dict(mime=got[1], data=data, request=self.count - 1))
        if found and not self.vision: return bad("this model does not take images")
        if self.max_images is not None and len(found) > self.max_images: return bad(f"At most {self.max_images} image(s) may be provided in one prompt.")
        if self.keep: self.images += found
        if self.context:
            n, out = self.size(request), request.get("max_tokens") or 0
            if self.style == "vllm" and n + out > self.context:
                return bad(f"This model's maximum context length is {self.context} tokens. However, you requested {n + out} tokens ({n} in the messages, {out} in the completion). Please reduce the length of the messages or completion.")
            if n >= self.context: return Say(status=400, body={"error": dict(code=400, message=f"request ({n} tokens) exceeds the available context size ({self.context} tokens), try increasing it", type="exceed_context_size_error", n_prompt_tokens=n, n_ctx=self.context)})

    def prompt(self, request):
        "The request as one text, as a chat template would see it."
        part = lambda p: p.get("text", "") if p.get("type") == "text" else "<image %s>" % hashlib.sha256(p["image_url"]["url"].encode()).hexdigest()[:12]
        return "".join(f"<|{m['role']}|>" + (m["content"] if isinstance(m["content"], str) else "".join(map(part, m["content"] or []))) for m in request["messages"])

    def size(self, request): return -(-len(self.prompt(request)) // 4)

    def cached(self, prompt):
        "Characters of `prompt` that stand at the start of an earlier one: what a prefix cache would serve. Remembers `prompt`."
        best = max((shared(prompt, p) for p in self._prompts), default=0)
        self._prompts = self._prompts[-63:] + [prompt]
        return best

    def completion(self, request, say):
        "The JSON of a chat completion."
        text, top = say.text, request.get("top_logprobs") or 0
        prompt = self.prompt(request); n = -(-len(prompt) // 4); hit = self.cached(prompt) // 4 if self.keep else 0
        tokens = say.tokens if say.tokens is not None else with_logprobs(split_tokens(text or ""), top) if request.get("logprobs") else None
        usage = say.usage if say.usage is not None else dict(prompt_tokens=n, completion_tokens=len(tokens) if tokens is not None else -(-len(text or "") // 4), prompt_tokens_details=dict(cached_tokens=hit))
        choice = dict(index=0, finish_reason=say.finish, message=dict(role="assistant", content=text, **say.message))
        if tokens is not None and request.get("logprobs"): choice["logprobs"] = logprob_json(tokens, top)
        return dict(id=f"chatcmpl-{self.count}", object="chat.completion", created=0, model=self.model, choices=[choice], usage=usage)

    def embed(self, request):
        "Unit vectors that depend on the text alone."
        texts = request.get("input"); texts = [texts] if isinstance(texts, str) else texts or []
        def row(t):
            rng = random.Random(hashlib.sha256(json.dumps(t).encode()).digest()); v = [rng.gauss(0, 1) for _ in range(self.dim)]; n = math.sqrt(sum(x * x for x in v))
            return [x / n for x in v]
        return Say(body=dict(object="list", model=self.model, data=[dict(object="embedding", index=i, embedding=row(t)) for i, t in enumerate(texts)], usage=dict(prompt_tokens=0, total_tokens=0)))


def shared(a, b):
    "How many characters `a` and `b` share at the start."
    low, high = 0, min(len(a), len(b))
    while low < high:
        mid = (low + high + 1) // 2
        if a[low:mid] == b[low:mid]: low = mid
        else: high = mid - 1
    return low


class _Link(asyncio.Protocol):
    "One connection: requests in, replies out, kept alive."
    def __init__(self, server): self.server, self.buffer, self.busy = server, bytearray(), False
    def connection_made(self, transport): self.transport = transport; self.server._links.add(self); self.server.connections += 1
    def connection_lost(self, exc): self.server._links.discard(self)
    def abort(self): self.transport.abort()
    def data_received(self, data): self.buffer += data; self.next()

    def next(self):
        if self.busy: return
        if self.buffer[:1] == b"\x16": self.transport.write(b"HTTP/1.1 400 X\r\n\r\n"); return self.transport.close() # a TLS greeting
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0: return
        head = bytes(self.buffer[:end]).decode("latin-1").split("\r\n"); headers = {}
        for line in head[1:]:
            k, _, v = line.partition(":"); headers[k.strip().lower()] = v.strip()
        n = int(headers.get("content-length", 0))
        if len(self.buffer) < end + 4 + n: return
        body = bytes(self.buffer[end + 4:end + 4 + n]); del self.buffer[:end + 4 + n]
        method, path, _ = head[0].split(" ", 2); self.busy = True
        server = self.server; server.open += 1; server.peak = max(server.peak, server.open)
        try:
            say = server.respond(method, path.partition("?")[0], headers, body)
            if say.body is not None: out = say.body if isinstance(say.body, bytes) else say.body.encode() if isinstance(say.body, str) else json.dumps(say.body).encode()
            else: out = json.dumps(server.completion(json.loads(body), say), ensure_ascii=False).encode("utf-8", "backslashreplace")
        except Exception as e: say, out = Say(status=500), json.dumps({"error": {"message": f"test server: {type(e).__name__}: {e}"}}).encode()
        wait = say.delay + (server.latency if method == "POST" else 0)
        asyncio.get_running_loop().call_later(wait, self.send, say, out) if wait else self.send(say, out)

    def send(self, say, out):
        self.server.open -= 1
        if say.hang: return
        if say.drop == "before" or self.transport.is_closing(): return self.transport.abort()
        head = {"Content-Type": "application/json", "Content-Length": str(len(out)), **say.headers}
        data = f"HTTP/1.1 {say.status} X\r\n".encode() + "".join(f"{k}: {v}\r\n" for k, v in head.items()).encode() + b"\r\n" + out
        if say.drop: self.transport.write(data[:len(data) // 2]); return self.transport.close()
        if say.drip: return asyncio.ensure_future(self.drip(data, say.drip))
        self.transport.write(data); self.busy = False
        if self.buffer: self.next()

    async def drip(self, data, pause):
        for i in range(len(data)):
            if self.transport.is_closing(): return
            self.transport.write(data[i:i + 1]); await asyncio.sleep(pause)
        self.busy = False


# ------------------------------------------------------------------------------------------------ in a process of its own

@contextmanager
def spawn(*args):
    "The server in its own process (arguments as on the command line); yields its URL."
    p = subprocess.Popen([sys.executable, str(Path(__file__).resolve()), "--port", "0", *map(str, args)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    try: yield p.stdout.readline().strip()
    finally: p.terminate(); p.wait(10); p.stdout.close(); p.stdin.close()


def main(argv=None):
    p = argparse.ArgumentParser(description="A chat server without a model: schema-valid replies that depend on the request alone.")
    p.add_argument("--port", type=int, default=8000); p.add_argument("--latency", type=float, default=0.0, help="seconds before every reply")
    p.add_argument("--model", default="test-model"); p.add_argument("--api-key"); p.add_argument("--context", type=int); p.add_argument("--style", default="llama.cpp", choices=["llama.cpp", "vllm"])
    p.add_argument("--say", help="always reply with this text"); p.add_argument("--no-vision", action="store_true"); p.add_argument("--keep", action="store_true", help="count cached prompt tokens")
    a = p.parse_args(argv)
    with ChatServer(a.say, latency=a.latency, port=a.port, model=a.model, api_key=a.api_key, context=a.context, style=a.style, vision=not a.no_vision, keep=a.keep) as server:
        print(server.url, flush=True)
        try:
            while True: time.sleep(3600)
        except KeyboardInterrupt: pass


if __name__ == "__main__": main()
