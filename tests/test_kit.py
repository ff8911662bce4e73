"What a kit shares between threads."
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from reveal_kit import kit as module
from reveal_kit.kit import Kit


def test_one_video_is_built_once_and_another_need_not_wait(tmp_path, monkeypatch):
    built, started, on = [], threading.Event(), threading.Event()
    def build(path, *_):
        built.append(path)
        if path == "slow": started.set(); assert on.wait(60)
        return object()
    monkeypatch.setattr(module, "build", build); monkeypatch.setattr(Kit, "recipe", lambda self, **_: None)
    with Kit("mini", mode="live", log=tmp_path / "calls.sqlite") as kit, ThreadPoolExecutor(3) as pool:
        slow = [pool.submit(kit.memory, "slow") for _ in range(2)]; assert started.wait(60)
        quick = pool.submit(kit.memory, "quick").result(60)
        assert quick is kit.memory("quick") and not any(f.done() for f in slow); on.set()
        assert slow[0].result(60) is slow[1].result(60) is kit.memory("slow")
    assert built == ["slow", "quick"]


@pytest.mark.parametrize("links", [False, True])
def test_vesta_opens_videos_as_the_profile_says(tmp_path, monkeypatch, links):
    from reveal_kit.agents import vesta
    from reveal_kit.profiles import Profile
    opened = []; monkeypatch.setattr(vesta, "open_video", lambda path, links=False: opened.append((path, links)))
    with Kit(Profile.load("mini").model_copy(update=dict(links=links)), log=tmp_path / "calls.sqlite", mode="live", videos={"v": tmp_path / "clips"}) as kit: vesta.Vesta.from_kit(kit).senses("v")
    assert opened == [(tmp_path / "clips", links)]
