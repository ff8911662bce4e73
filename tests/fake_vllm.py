"""A stand-in for `vllm serve`: same command line, same addresses, no model. What it does wrong is chosen with $FAKE_VLLM, a list of words:

ready=S    healthy only after S seconds                  stubborn   ignores SIGTERM, and so does the worker that it starts in its process group
never      listens but is never healthy                  worker     starts a worker process, as vLLM does
crash      ends with code 1 while loading                stranger   serves another model than it was asked for
later=S    ends with code 1 S seconds after the start    taken=FILE finds its port in use, once: FILE remembers
chatty     writes megabytes to its log                   llama      speaks llama.cpp's start-up protocol instead: settings on stdin, address on stdout

Every process it starts writes its id to $FAKE_PIDS, a file, so that a test can see what is left. Flags are those that the real program was seen to accept;
an unknown one ends it with code 2, as there.
"""
import argparse, json, os, signal, subprocess, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = dict(w.partition("=")[::2] for w in os.environ.get("FAKE_VLLM", "").split())


def note(pid):
    if path := os.environ.get("FAKE_PIDS"):
        with open(path, "a") as f: f.write(f"{pid}\n")


def arguments(argv):
    p = argparse.ArgumentParser(prog="vllm serve")
    p.add_argument("model_tag", nargs="?"); p.add_argument("--model")
    for name in ("host", "served-model-name", "generation-config", "revision", "api-key", "dtype"): p.add_argument(f"--{name}")
    for name in ("port", "max-model-len", "tensor-parallel-size", "max-num-seqs"): p.add_argument(f"--{name}", type=int)
    p.add_argument("--gpu-memory-utilization", type=float)
    for name in ("structured-outputs-config", "limit-mm-per-prompt"): p.add_argument(f"--{name}", type=json.loads, default={})
    for name in ("enable-prompt-tokens-details", "enable-prefix-caching", "enforce-eager"): p.add_argument(f"--{name}", action="store_true")
    a = p.parse_args(argv)
    if a.structured_outputs_config.get("disable_any_whitespace") and a.structured_outputs_config.get("backend", "auto") == "auto": p.error("disable_any_whitespace needs a backend")
    return a


def example(schema):
    "The first value that `schema` allows."
    if "enum" in schema: return schema["enum"][0]
    kind = schema.get("type", "object")
    if kind == "object": return {k: example(v) for k, v in schema.get("properties", {}).items()}
    return dict(string="x", integer=1, number=0.5, boolean=True, array=[]).get(kind)


def handler(name, key, args, healthy):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        def log_message(self, *a): pass
        def reply(self, status, body):
            data = json.dumps(body).encode()
            self.send_response(status); self.send_header("Content-Type", "application/json"); self.send_header("Content-Length", str(len(data))); self.end_headers(); self.wfile.write(data)
        def denied(self):
            if not self.path.startswith("/v1") or not key or self.headers.get("Authorization") == f"Bearer {key}": return False
            self.reply(401, dict(error="Unauthorized")); return True
        def do_GET(self):
            if self.path == "/health": return self.reply(200 if healthy() else 503, {})
            if self.denied(): return
            self.reply(200, dict(object="list", data=[dict(id=name, object="model")])) if self.path == "/v1/models" else self.reply(404, {})
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.denied(): return
            schema, strict = body.get("response_format", {}).get("json_schema", {}).get("schema"), args.structured_outputs_config
            text, end = "hello", "stop"
            if schema: text, end = (json.dumps(example(schema)), "stop") if strict.get("backend") == "guidance" and strict.get("disable_any_whitespace") else ('{"' + " " * 40, "length")
            images = sum(p.get("type") == "image_url" for m in body["messages"] if isinstance(m["content"], list) for p in m["content"])
            if images > args.limit_mm_per_prompt.get("image", 999): return self.reply(400, dict(error="too many images"))
            usage = dict(prompt_tokens=7, completion_tokens=1, total_tokens=8, prompt_tokens_details=dict(cached_tokens=3) if args.enable_prompt_tokens_details else None)
            self.reply(200, dict(id="1", object="chat.completion", created=0, model=name, choices=[dict(index=0, finish_reason=end, message=dict(role="assistant", content=text))], usage=usage))
    return Handler


def main():
    note(os.getpid())
    if "stubborn" in WORDS: signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "stubborn" in WORDS or "worker" in WORDS:
        w = subprocess.Popen([sys.executable, "-c", f"import signal, time; signal.signal(signal.SIGTERM, signal.{'SIG_IGN' if 'stubborn' in WORDS else 'SIG_DFL'}); time.sleep(600)"]); note(w.pid)
    if "llama" in WORDS:
        cfg = json.loads(sys.stdin.read()); name, key, port, host, args = cfg["model"], cfg["key"], 0, "127.0.0.1", arguments(["x"])
        print("llama settings:", json.dumps({k: v for k, v in cfg.items() if k != "key"}), file=sys.stderr, flush=True)
    else:
        args = arguments(sys.argv[2:] if sys.argv[1:2] == ["serve"] else sys.argv[1:])
        name, key, port, host = args.served_model_name, args.api_key or os.environ.get("VLLM_API_KEY"), args.port, args.host
    print("loading weights", file=sys.stderr, flush=True)
    if "chatty" in WORDS: sys.stderr.write(("x" * 199 + "\n") * 15_000)
    if "crash" in WORDS: time.sleep(0.1); sys.exit("ValueError: No available memory for the cache blocks.")
    if (mark := WORDS.get("taken")) and not os.path.exists(mark): open(mark, "w").close(); sys.exit("OSError: [Errno 98] Address already in use")
    start = time.monotonic()
    healthy = lambda: "never" not in WORDS and time.monotonic() - start >= float(WORDS.get("ready") or 0)
    server = ThreadingHTTPServer((host, port), handler("another-model" if "stranger" in WORDS else name, key, args, healthy))
    if "later" in WORDS: threading.Timer(float(WORDS["later"]), lambda: (print("EngineDeadError", file=sys.stderr, flush=True), os._exit(1))).start()
    if "llama" in WORDS: print(json.dumps(dict(url=f"http://127.0.0.1:{server.server_port}")), flush=True)
    server.serve_forever()


if __name__ == "__main__": main()
