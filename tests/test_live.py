"One question, nothing recorded, nothing stood in for: a real video, real speech recognition, real OCR, real embeddings, a real language model."
from pathlib import Path

import pytest

from reveal_kit import zoo
from reveal_kit.agents.retrieval import Retrieval
from reveal_kit.core import Question
from reveal_kit.kit import Kit

CLIP = Path(__file__).resolve().parent / "data" / "spoken.mp4"


@pytest.mark.live
def test_the_small_model_answers_one_question_from_a_real_memory(own_home):
    if not all(zoo.present(m) for m in ("qwen2.5-coder-1.5b-q4", "whisper-base", "minilm-int8")): pytest.fail("the mini weights are not here: reveal models pull mini")
    q = Question("live", CLIP.stem, "When does the ferry to the island leave?", ("at seven fifteen", "at nine thirty", "at noon", "at four in the afternoon"))
    with Kit("mini", mode="live", log=own_home / "calls.sqlite", videos={q.video: CLIP}, levels=1) as kit:
        memory = kit.memory(q.video)
        a = Retrieval.from_kit(kit).answer(q)
    heard = " ".join(g.spoken for g in memory.level(1)).lower()
    assert "ferry" in heard and "island" in heard                                   # speech recognition
    best = memory.search(q.text, k=1)[0]
    assert "ferry" in best.segment.spoken.lower() and best.span.start < 15          # embeddings and alignment: it is said at 0:04
    assert a.trace.total("calls") == 1 and a.trace.total("replayed") == 0 and a.trace.total("prompt") > 200
    assert a.letter == "B", a.text                                                  # the language model
