"The `reveal` command: exit codes, one clear line for what a person can mend, JSON on request."
import json
import sys

import pytest

from reveal_kit import cli
from tests import media
from tests.chat_server import ChatServer, Say

SRT = "1\n00:00:01,000 --> 00:00:02,500\nThe ferry leaves at ten.\n\n2\n00:00:05,000 --> 00:00:07,000\nPears are cheap today.\n"


@pytest.fixture
def reveal(monkeypatch, capsys):
    "Run the command as a shell would: exit code, standard output, standard error."
    def run(*args):
        monkeypatch.setattr(sys, "argv", ["reveal", *map(str, args)])
        try: cli.main(); code = 0
        except SystemExit as e: code = e.code or 0
        out = capsys.readouterr()
        return code, out.out, out.err
    return run


@pytest.fixture
def clip(tmp_path):
    (tmp_path / "a.srt").write_text(SRT)
    return media.make(tmp_path / "a.mp4", seconds=8)


@pytest.fixture
def profile(tmp_path):
    "A profile whose chat model is whatever server the test starts."
    def write(url, **more):
        p = tmp_path / "mine.toml"
        p.write_text(f'name = "mine"\nextends = "mini"\n[roles.default]\nengine = "openai"\nmodel = "m"\nbase_url = "{url}"\ntimeout = 2\n[transcriber]\nengine = "none"\n' + "".join(f"{k} = {v}\n" for k, v in more.items()))
        return p
    return write


def letter(request): return '{"answer": "B"}'


@pytest.mark.parametrize("args", [["ask"], ["memory"], ["nonsense"], ["memory", "build"], ["ask", "a.mp4", "q", "--levels", "9"], ["memory", "build", "a.mp4", "--levels", "7"]])
def test_a_mistyped_command_exits_with_2(reveal, args): assert reveal(*args)[0] == 2


def test_profiles_and_models_list_as_tables_and_as_json(reveal):
    code, out, _ = reveal("profiles", "--json"); assert code == 0 and {"mini", "paper-reveal", "paper-vesta", "open-vesta"} <= set(json.loads(out))
    code, out, _ = reveal("models", "list", "--json"); assert code == 0 and {"minilm-int8", "whisper-base"} <= {r["name"] for r in json.loads(out)}
    assert "minilm-int8" in reveal("models", "list")[1]
    code, _, err = reveal("profiles", "maxi"); assert code == 1 and "mini" in err and err.count("\n") == 1
    code, _, err = reveal("models", "pull", "gpt-9"); assert code == 1 and "gpt-9" in err


@pytest.mark.parametrize("make, says", [(lambda p: None, "no such|not there|does not exist"), (lambda p: p.mkdir(), "folder|directory"), (lambda p: p.write_bytes(b""), "empty"), (lambda p: p.write_text("hello " * 99), "not a video|cannot be read|no video"),
                                        (lambda p: media.make(p.with_suffix(".m4a"), video=False) .rename(p), "no picture|no video|only sound|audio")])
@pytest.mark.parametrize("command", [["memory", "build"], ["ask"]])
def test_what_is_no_video_gets_one_line_and_leaves_nothing(reveal, tmp_path, own_home, command, make, says):
    p = tmp_path / "movie.mp4"; make(p)
    code, out, err = reveal(*command, p, *(["What?"] if command == ["ask"] else []))
    import re
    assert code == 1 and out == "" and "movie.mp4" in err and err.count("\n") == 1 and re.search(says, err, re.I), err
    assert sorted(x.name for x in own_home.iterdir() if x.name not in ("models", "calls")) == []


def test_build_show_and_query(reveal, own_home, clip, profile, tmp_path):
    p, s = profile("http://127.0.0.1:9/v1"), tmp_path / "a.srt"
    code, _, err = reveal("memory", "show", clip, "-p", p, "-s", s); assert code == 1 and "reveal memory build" in err
    code, out, _ = reveal("memory", "build", clip, "-p", p, "-s", s, "--json"); built = json.loads(out)
    assert code == 0 and built["segments"]["L1"] >= 1 and built["counts"]["spoken_lines"] == 2
    code, out, _ = reveal("memory", "show", clip, "-p", p, "-s", s, "-q", "fruit prices", "-k", 1, "--json")
    assert code == 0 and "Pears" in json.loads(out)[0]["text"]
    assert reveal("memory", "show", clip, "-p", p, "-s", s, "-q", "  ")[0] == 1


def test_an_answer_carries_its_evidence_and_its_cost(reveal, own_home, clip, profile, tmp_path):
    with ChatServer(letter) as server:
        args = ("ask", clip, "When does the ferry leave?", "-o", "A. nine", "-o", "B. ten", "-p", profile(server.url), "-s", tmp_path / "a.srt")
        code, out, err = reveal(*args, "--json"); r = json.loads(out)
        assert code == 0 and r["letter"] == "B" and r["answer"] == "ten" and r["calls"] == 1 and r["replayed"] == 0
        assert any("ferry" in e["heard"] for e in r["evidence"]) and r["tokens"]["prompt"] > 0
        r = json.loads(reveal(*args, "--json")[1]); assert r["replayed"] == 1 and server.count == 1           # a second time from the log
        code, out, _ = reveal(*args); assert code == 0 and out.startswith("B. ten") and "heard" in out


def test_a_free_question_gets_words(reveal, own_home, clip, profile, tmp_path):
    with ChatServer('{"answer": "At ten."}') as server:
        r = json.loads(reveal("ask", clip, "When?", "-p", profile(server.url), "-s", tmp_path / "a.srt", "--json")[1])
    assert r["letter"] is None and r["answer"] == "At ten."


@pytest.mark.parametrize("question, options, code", [("x" * 20_000, ["a", "b"], 0), ("q?", ["only one"], 0), ("q?", [f"option {i}" for i in range(27)], 1), ("q?", ["A. x", "A. y"], 1), ("q?", ["a", ""], 1), ("", ["a", "b"], 1), ("   ", [], 1), ("q?", ["ten", "TEN"], 0)])
def test_odd_questions_work_or_are_explained(reveal, own_home, clip, profile, tmp_path, question, options, code):
    with ChatServer(lambda r: '{"answer": "A"}') as server:
        got, out, err = reveal("ask", clip, question, *[x for o in options for x in ("-o", o)], "-p", profile(server.url), "-s", tmp_path / "a.srt")
    assert got == code and (out.startswith("A. ") if code == 0 else err.count("\n") == 1 and err.startswith("reveal: ")), err


@pytest.mark.parametrize("say", ["", "not json", '{"answer": "Z"}', '{"letter": "A"}', "[1, 2]", '{"answer": ["A"]}'])
def test_a_reply_without_a_letter_is_shown_and_no_letter_is_made_up(reveal, own_home, clip, profile, tmp_path, say):
    with ChatServer(say) as server:
        code, out, _ = reveal("ask", clip, "When?", "-o", "nine", "-o", "ten", "-p", profile(server.url), "-s", tmp_path / "a.srt", "--json")
    assert code == 0 and json.loads(out)["letter"] is None


@pytest.mark.parametrize("say, says", [(Say(hang=True), "no whole reply"), (Say(drop="before"), "connection"), (Say(drop="middle"), "connection"), (Say(status=500, body="oops"), "500"), (Say(body="<html>hi"), "not JSON"), (Say(body={"a": 1}), "not a chat completion"),
                                       (Say(body=b"x" * 10_000_000), "longer than")])
def test_a_broken_chat_server_gets_one_line(reveal, own_home, clip, profile, tmp_path, monkeypatch, say, says):
    from reveal_kit import chat
    monkeypatch.setattr(chat.Chat.__init__, "__defaults__", (None, 2, 0.01, 5.0))                          # two quick tries
    monkeypatch.setattr("reveal_kit.kit.Endpoint", lambda **kw: chat.Endpoint(**(kw | dict(timeout=0.5))))
    with ChatServer(say) as server:
        code, out, err = reveal("ask", clip, "When?", "-o", "nine", "-o", "ten", "-p", profile(server.url, ), "-s", tmp_path / "a.srt")
    assert code == 1 and out == "" and says in err and err.count("\n") == 1 and "role answerer" in err, err


def test_agents_are_found_or_listed(reveal, own_home, clip, profile, tmp_path):
    p = profile("http://127.0.0.1:9/v1")
    for agent, says in (("reveil", "retrieval"), ("no_such_module:X", "no_such_module"), ("json:Nothing", "Nothing"), (":X", "my_module:MyAgent"), ("./mine.py:X", "not by path"), ("mine:X.y", "not by path")):
        code, _, err = reveal("ask", clip, "q?", "-a", agent, "-p", p, "-s", tmp_path / "a.srt"); assert code == 1 and says in err


def test_a_full_disk_is_one_line(reveal, own_home, clip, profile, tmp_path, monkeypatch):
    import os
    def full(fd): raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "fsync", full)
    code, _, err = reveal("memory", "build", clip, "-p", profile("http://127.0.0.1:9/v1"), "-s", tmp_path / "a.srt")
    assert code == 1 and "no space left" in err and err.count("\n") == 1
    monkeypatch.undo(); assert not list(own_home.rglob("*.tmp"))


def test_a_file_where_a_folder_is_wanted_is_one_line(reveal, own_home, tmp_path):
    (tmp_path / "here").write_text("x")
    for runs in (tmp_path / "here", tmp_path / "here" / "below"):
        code, _, err = reveal("eval", "direct", "mini", "--runs", runs); assert code == 1 and str(tmp_path / "here") in err and "another folder" in err and err.count("\n") == 1, err


def test_a_service_may_start_it_without_standard_streams(own_home, tmp_path):
    "With standard error closed the questions went unasked."
    import os, subprocess, sys
    (tmp_path / "mine.py").write_text("class A:\n    def answer(self, q): return 'A'\n")
    for closed in (2, 1):
        limit = str(3 - closed); out = subprocess.run([sys.executable, "-c", "from reveal_kit.cli import main; main()", "eval", "mine:A", "mini", "--limit", limit, "--runs", "runs"], cwd=tmp_path, env=os.environ | dict(PYTHONPATH=os.getcwd()),
                                                      capture_output=True, preexec_fn=lambda: os.close(closed))
        assert out.returncode == 0, out
        [records] = (tmp_path / "runs").glob("*/records.jsonl"); assert len(records.read_text().splitlines()) == int(limit)


def test_an_interrupt_exits_with_130(reveal, own_home, clip, profile, tmp_path, monkeypatch):
    from reveal_kit import memory
    def stop(*a, **k): raise KeyboardInterrupt
    monkeypatch.setattr(memory, "frames_stage", stop)
    assert reveal("memory", "build", clip, "-p", profile("http://127.0.0.1:9/v1"), "-s", tmp_path / "a.srt")[0] == 130


def test_an_interrupted_command_says_that_it_can_go_on(monkeypatch, capsys):
    import typer
    from reveal_kit import cli
    app = typer.Typer()
    @app.command()
    def stopped(): raise KeyboardInterrupt
    monkeypatch.setattr(cli, "app", app); monkeypatch.setattr("sys.argv", ["reveal"])
    with pytest.raises(SystemExit) as e: cli.main()
    assert e.value.code == 130 and "the same command continues" in capsys.readouterr().err
