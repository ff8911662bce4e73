"Shared fixtures: the real small encoders, and a home folder of the test's own."
import os
import signal
import sys
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN: signal.signal(signal.SIGINT, signal.default_int_handler)   # started in the background of a shell: what the tests interrupt would inherit deafness
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))         # `from tests.chat_server import ChatServer` from any folder


@pytest.fixture(scope="session")
def minilm():
    from reveal_kit import zoo
    from reveal_kit.embed import MiniLM
    if not zoo.present("minilm-int8"): pytest.skip("the text encoder's weights are not here: reveal models pull mini")
    return MiniLM(zoo.folder("minilm-int8"))


@pytest.fixture(scope="session")
def descriptor():
    from reveal_kit.embed import Descriptor
    return Descriptor()


@pytest.fixture
def own_home(tmp_path, monkeypatch):
    "A fresh `home()` that still sees the real weights."
    from reveal_kit.core import home
    real = home() / "models"
    (tmp_path / "home").mkdir(); (tmp_path / "home" / "models").symlink_to(real)
    monkeypatch.setenv("REVEAL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
