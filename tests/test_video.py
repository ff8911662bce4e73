"""`reveal_kit.video` on files of every kind: which frame is on the screen when, sound on the same clock, and one clear line for what cannot be used."""
import os, subprocess, sys, threading
from fractions import Fraction
from pathlib import Path

import numpy as np, pytest
from hypothesis import given, settings, strategies as st

import media
from reveal_kit import video as module
from reveal_kit.core import InputError, Span
from reveal_kit.video import Video, fingerprint, jpeg, quality, thumbnail

def numbers(batches): return [media.number(f) for _, fs in batches for f in fs]

@pytest.fixture(scope="module")
def folder(tmp_path_factory): return tmp_path_factory.mktemp("videos")

@pytest.fixture(scope="module")
def film(folder): return Video(media.make(folder / "film.mp4", seconds=12, gop=30))

# --- which frame, when -----------------------------------------------------------------------------------------------------------------------

OPEN = {"x264-params": "open-gop=1:bframes=3:keyint=30:min-keyint=30:scenecut=0"}
KINDS = {"a.mp4": {}, "front.mp4": dict(faststart=True), "open.mp4": dict(codec_options=OPEN), "a.mkv": {}, "a.ts": {}, "open.ts": dict(codec_options=OPEN), "a.mov": {}, "a.flv": {},
         "a.avi": dict(codec="mpeg4"), "four.ts": dict(codec="mpeg4", codec_options={"bf": "2"}), "a.webm": dict(codec="libvpx", sound_rate=48000), "ten.mp4": dict(pix_fmt="yuv420p10le"), "odd.mp4": dict(size=(65, 49)),
         "late.mp4": dict(start=5), "late.mkv": dict(start=5), "late.ts": dict(start=1000), "stereo.mp4": dict(channels=2), "surround.mkv": dict(channels=6), "aspect.mp4": dict(aspect=Fraction(4, 3))}

@pytest.mark.parametrize("name", KINDS)
def test_every_container_gives_the_same_pictures_and_sound(folder, name):
    v = Video(media.make(folder / "kinds" / name, seconds=12, gop=30, **KINDS[name]))
    assert abs(v.duration - 12) < .1 and v.missing == 0 and abs(v.fps - 10) < .1 and v.has_audio
    assert v.size == {"odd.mp4": (65, 49), "aspect.mp4": (85, 48)}.get(name, (64, 48))
    assert numbers(v.frames(10, Span(0, 12))) == list(range(120))
    assert [media.number(v.frames_at([n / 10])[0]) for n in (119, 0, 29, 30, 31, 77)] == [119, 0, 29, 30, 31, 77]           # each by its own seek
    assert [media.number(f) for f in module._pictures(v, np.arange(0, 12, .7), None, far=.05)] == list(range(0, 120, 7))    # always jumping
    assert v.keyframes()[:4] == pytest.approx([0, 3, 6, 9], abs=.002)
    for s in (0, 5, 10): assert abs(media.heard(v.audio(Span(s + .05, s + .95)), 16000) - media.pitch(s)) < 3
    assert v.damage == 0

def test_variable_frame_rate(folder):
    for name in ("vfr.mp4", "vfr.mkv", "vfr.ts"):
        v = Video(media.make(folder / name, times=[0, .1, .5, 2, 2.04, 3, 7], start=2.5))
        ts, _ = next(v.frames(1, Span(0, 9)))
        assert ts.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8][:len(ts)] and len(ts) >= 8
        assert numbers(v.frames(1, Span(0, 8))) == [0, 2, 3, 5, 5, 5, 5, 6]
        assert [media.number(f) for f in v.frames_at([2.038, 2.0395, 1.99, .098, .1])] == [3, 4, 2, 0, 1]   # times within a millisecond are one

def test_24000_1001(folder):
    v = Video(media.make(folder / "ntsc.mp4", rate=Fraction(24000, 1001), seconds=10))
    assert numbers(v.frames(1)) == [int(t * Fraction(24000, 1001)) for t in range(11)]
    assert v.fps == pytest.approx(23.976, abs=.001)

def test_sound_that_leads_or_follows_shares_the_clock(folder):
    lead = Video(media.make(folder / "lead.mkv", seconds=4, start=3, sound_delay=-2))                    # sound from 1 s, picture from 3 s of the file
    assert lead.begin == pytest.approx(2, abs=.03) and lead.duration == pytest.approx(6, abs=.1)
    assert numbers(lead.frames(1)) [:5] == [0, 0, 0, 10, 20]
    assert abs(media.heard(lead.audio(Span(1.1, 1.9)), 16000) - media.pitch(1)) < 3
    follow = Video(media.make(folder / "follow.mp4", seconds=4, sound_delay=1.0))
    assert numbers(follow.frames(1)) == [0, 10, 20, 30, 39] and not follow.audio(Span(0, .9)).any()      # the last picture stays while the sound goes on
    assert abs(media.heard(follow.audio(Span(2.1, 2.9)), 16000) - media.pitch(1)) < 3

@pytest.mark.parametrize("rotate,flip,quarter", [(-90, False, -1), (90, False, 1), (180, False, 2), (0, True, None), (90, True, None)])
def test_turned_pictures_are_upright(folder, rotate, flip, quarter):
    v = Video(media.make(folder / f"turn{rotate}{flip}.mp4", rotate=rotate, flip=flip, seconds=2))
    shown = media.picture(0b1000010000100011)
    shown = np.rot90(shown, rotate // 90)
    if flip: shown = shown[:, ::-1]
    v2 = Video(media.make(folder / f"turned{rotate}{flip}.mp4", rotate=rotate, flip=flip, seconds=.2, draw=lambda n, size: media.picture(0b1000010000100011, size)))
    got = v2.frames_at([0])[0]
    assert got.shape == shown.shape and v2.size == got.shape[1::-1] and np.abs(got.astype(int) - shown).mean() < 12
    assert v.rotation == (rotate * -1) % 360 or flip
    assert next(v.frames(1, size=(30, 20)))[1].shape == (2, 20, 30, 3)

def test_one_frame(folder):
    v = Video(media.make(folder / "one.mp4", seconds=.1))
    assert numbers(v.frames(1)) == [0] and v.duration == pytest.approx(.1, abs=.01) and v.clip(v.span, 3)[1].shape == (3, 48, 64, 3)
    w = Video(media.make(folder / "one-mute.mp4", seconds=.1, sound=False, size=(2, 2), pix_fmt="yuv420p"))
    assert next(w.frames(1))[1].shape == (1, 2, 2, 3) and w.audio().shape == (0,)

def test_no_sound(folder):
    v = Video(media.make(folder / "mute.mp4", sound=False))
    assert not v.has_audio and v.audio().dtype == np.float32 and v.audio(Span(1, 2)).shape == (0,) and "none" in v._repr_markdown_()

# --- the same frames however they are asked for --------------------------------------------------------------------------------------------------

@settings(max_examples=25, deadline=None)
@given(rate=st.sampled_from([.3, 1, 2.5, 10, 12]), cut=st.floats(0, 12), batch=st.integers(1, 40), far=st.sampled_from([.05, 1, 10]))
def test_batch_span_and_jumps_do_not_matter(film, rate, cut, batch, far):
    whole_t, whole = (np.concatenate(x) for x in zip(*film.frames(rate, size=32)))
    assert np.allclose(whole_t, np.arange(len(whole_t)) / rate)
    parts = [b for s in (Span(0, cut), Span(cut, 12)) for b in film.frames(rate, s, size=32, batch=batch)]
    t, f = (np.concatenate(x) for x in zip(*parts))
    assert t.tolist() == whole_t.tolist() and (f == whole).all()
    assert (film.frames_at(t[::-1], size=32) == whole[::-1]).all()
    assert all((a == b).all() for a, b in zip(module._pictures(film, t, 32, far), whole))

def test_one_thread_or_two(film, monkeypatch):
    two = np.concatenate([f for _, f in film.frames(5)])
    stand = module._stand
    def single(path, index):
        c, v = stand(path, index); v.codec_context.thread_count = 1
        return c, v
    monkeypatch.setattr(module, "_stand", single)
    assert (np.concatenate([f for _, f in film.frames(5)]) == two).all()

def test_many_readers_at_once(film):
    want, got = numbers(film.frames(2)), {}
    ts = [threading.Thread(target=lambda i=i: got.setdefault(i, numbers(film.frames(2, batch=i + 1)))) for i in range(4)]
    for t in ts: t.start()
    for t in ts: t.join()
    assert [got[i] for i in range(4)] == [want] * 4

def test_only_what_is_delivered_is_converted_and_clips_jump(folder, monkeypatch):
    import av.video.reformatter as r
    v = Video(media.make(folder / "long.mp4", seconds=60, gop=20, sound=False))
    converted, decoded = [], []
    class Counting:
        def __init__(self): self.r = real()
        def reformat(self, f, *a, **k): converted.append(f.pts); return self.r.reformat(f, *a, **k)
    real, plain = r.VideoReformatter, module._decoded
    monkeypatch.setattr(r, "VideoReformatter", Counting)
    monkeypatch.setattr(module, "_decoded", lambda *a: (decoded.append(1) or f for f in plain(*a)))
    assert numbers(v.frames(1)) == list(range(0, 600, 10)) and len(converted) == 60 and len(decoded) <= 600
    converted.clear(), decoded.clear()
    _, f = v.clip(Span(50, 51), 20)                                      # ten frames stand in that second; each is converted once
    assert [media.number(x) for x in f] == [500 + i // 2 for i in range(20)] and len(converted) == 10 and len(decoded) < 45

def test_clip_frames_at_and_their_edges(film):
    t, f = film.clip(Span(2, 6), 4)
    assert t.tolist() == [2.5, 3.5, 4.5, 5.5] and [media.number(x) for x in f] == [25, 35, 45, 55]
    assert len(film.clip(Span(0, 12), 150)[1]) == 150
    t, _ = film.clip(Span(11, 40), 2); assert t.tolist() == [11.25, 11.75]                # what lies outside is left off
    t, f = film.clip(Span(20, 30), 5); assert len(t) == len(f) == 0
    assert film.clip(Span(1, 2), 0)[1].shape == (0, 48, 64, 3) and film.frames_at([]).shape == (0, 48, 64, 3)
    assert [media.number(x) for x in film.frames_at([99, -3, 5, 5, .25])] == [119, 0, 50, 50, 2]
    assert list(film.frames(1, Span(2.1, 2.9))) == [] and list(film.frames(1, Span(30, 40))) == []
    for bad in (lambda: film.frames_at([float("nan")]), lambda: next(film.frames(0)), lambda: next(film.frames(float("inf"))), lambda: next(film.frames(1, size=(0, 5)))):
        with pytest.raises(ValueError): bad()

def test_sizes(film, folder):
    assert film.frames_at([1], size=32).shape == (1, 24, 32, 3) and film.frames_at([1], size=(10, 20)).shape == (1, 20, 10, 3)
    assert [media.number(f) for f in film.frames_at([7.7, 3.3], size=24)] == [77, 33]
    tall = Video(media.make(folder / "tall.mp4", rotate=-90, seconds=1))
    assert tall.frames_at([0], size=32).shape == (1, 32, 24, 3)

@pytest.mark.parametrize("space,range_,fmt", [(1, 1, "yuv420p"), (5, 1, "yuv420p"), (1, 2, "yuv420p"), (5, 2, "yuvj420p"), (None, None, "yuv420p"), (1, 1, "yuv420p10le")])
def test_colours_by_matrix_and_range(folder, space, range_, fmt):
    import av
    rgb, path = np.uint8([200, 60, 40]), folder / f"colour{space}{range_}{fmt}.mp4"
    with av.open(str(path), "w") as c:
        v = c.add_stream("libx264", rate=5, options={"crf": "5"}); v.width, v.height, v.pix_fmt = 64, 48, fmt
        if space: v.codec_context.colorspace, v.codec_context.color_range = space, range_
        f = av.VideoFrame.from_ndarray(np.full((48, 64, 3), rgb), format="rgb24").reformat(format=fmt, dst_colorspace="ITU709" if space == 1 else "ITU601", dst_color_range="JPEG" if range_ == 2 else "MPEG")
        c.mux(v.encode(f)); c.mux(v.encode(None))
    got = Video(path).frames_at([0])[0, 24, 32]
    assert np.abs(got.astype(int) - rgb).max() <= 4, got

# --- sound ---------------------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name,rate", [("a.mp4", 44100), ("a.ts", 48000), ("b.mp4", 16000), ("c.mp4", 22050)])
def test_sound_of_a_span_is_the_slice_of_the_whole(folder, name, rate):
    v = Video(media.make(folder / f"sound{rate}-{name}", seconds=8, sound_rate=rate))
    whole = v.audio()
    assert whole.dtype == np.float32 and len(whole) == round(v.duration * 16000)
    for a, b in ((0, 2), (1, 3), (2.345, 5.5), (6, 8), (7.9, 20)):
        x, i = v.audio(Span(a, b)), round(a * 16000)
        assert len(x) == round(min(b, v.duration) * 16000) - i and np.abs(x - whole[i:i+len(x)]).max() < .01
    assert abs(whole[16000*2+2000:16000*3-2000].std() - .4 / 2**.5) < .01 and len(v.audio(Span(1, 2), rate=8000)) == 8000

def test_sound_in_pieces_joins_without_a_seam(film, monkeypatch):
    whole = film.audio()
    monkeypatch.setattr(module, "PIECE", 3)
    assert np.abs(film.audio() - whole).max() < .01

@pytest.mark.parametrize("channels", [1, 2, 6])
def test_an_impulse_sits_at_its_time(folder, channels):
    x = np.zeros(4 * 44100, np.float32); x[::44100] = .8
    for name in ("click.mp4", "click.mkv"):
        v = Video(media.make(folder / f"{channels}{name}", sound=x, channels=channels))
        for y, t0 in ((v.audio(), 0), (v.audio(Span(1.5, 3.5)), 1.5)):
            for t in (2, 3): 
                i = round((t - t0) * 16000)
                assert abs(int(np.argmax(np.abs(y[i-800:i+800]))) - 800) <= 16         # a millisecond: what Matroska rounds to

def test_a_hole_in_the_sound_is_silence_of_its_length(folder):
    for name in ("hole.mp4", "hole.mkv"):
        v = Video(media.make(folder / name, seconds=6, hole=(2, 4)))
        for s, loud in enumerate([1, 1, 0, 0, 1, 1]):
            x = v.audio(Span(s + .2, s + .8))
            assert (np.abs(x).max() > .2) == bool(loud), (name, s)
            if loud: assert abs(media.heard(x, 16000) - media.pitch(s)) < 4
        assert abs(media.heard(v.audio()[4*16000+3000:5*16000-3000], 16000) - media.pitch(4)) < 4

# --- what cannot be used, and what is damaged -------------------------------------------------------------------------------------------------------

def noisy(n, size):
    img = media.picture(n, size).astype(int) + np.random.default_rng(n).integers(-12, 12, (size[1], size[0], 3))
    return img.clip(0, 255).astype(np.uint8)

@pytest.fixture(scope="module")
def big(folder): return {s: media.make(folder / f"big{s}", seconds=10, size=(96, 72), draw=noisy, faststart=True) for s in (".mp4", ".mkv", ".ts")}

def refused(path, *words):
    with pytest.raises(InputError) as e: Video(path)
    line = str(e.value)
    assert "\n" not in line and str(Path(path).name) in line and line.count(". ") >= 1 and all(w in line for w in words), line

def test_each_unusable_file_gets_one_line(folder, big):
    def write(name, data): (folder / name).write_bytes(data); return folder / name
    png = jpeg(np.zeros((40, 40, 3), np.uint8))
    refused(folder / "nothing.mp4", "no such file", "Check")
    refused(folder / ("x" * 300), "no such file")
    refused(write("plain", b"x") / "x.mp4", "no such file")
    (folder / "folder.mp4").mkdir(exist_ok=True); refused(folder / "folder.mp4", "a folder")
    refused(write("empty.mp4", b""), "empty")
    refused(Path(os.devnull), "not a regular file")
    for name, data in {"text.mp4": b"hello\n" * 100, "noise.mp4": np.random.default_rng(0).bytes(50000), "zeros.mp4": bytes(50000), "image.mp4": png,
                       "subtitles.mp4": b"1\n00:00:01,000 --> 00:00:02,000\nhi\n\n2\n00:00:03,000 --> 00:00:04,000\nho\n"}.items(): refused(write(name, data), "not a video")
    refused(media.make(folder / "song.mp4", video=False), "sound only")
    refused(media.make(folder / "song.m4a", video=False), "sound only")
    refused(media.cut(media.make(folder / "back.mp4", seconds=10), .5), "index (moov)", "Get the whole file again")
    data = big[".mp4"].read_bytes()
    refused(write("head.mp4", data[:data.index(b"mdat") + 40]), "no picture")

def test_a_playlist_opens_no_other_file(folder, film):
    for name, text in {"list.mp4": f"ffconcat version 1.0\nfile {film.path.name}\n", "live.mp4": f"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{film.path}\n#EXT-X-ENDLIST\n"}.items():
        (folder / name).write_text(text); refused(folder / name, "not a video")

def test_a_song_with_a_cover_is_not_a_video(folder):
    import av
    from av.stream import Disposition
    path = folder / "cover.m4a"
    with av.open(str(path), "w", format="mp4") as c:
        a = c.add_stream("aac", rate=16000); a.layout = "mono"
        v = c.add_stream("mjpeg", rate=1); v.width, v.height, v.pix_fmt, v.disposition = 16, 16, "yuvj420p", Disposition.attached_pic
        f = av.AudioFrame.from_ndarray(media.tone(1, 16000)[None], format="fltp", layout="mono"); f.sample_rate, f.pts = 16000, 0
        c.mux(v.encode(av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8), format="rgb24"))); c.mux(v.encode(None)); c.mux(a.encode(f)); c.mux(a.encode(None))
    refused(path, "sound only")

@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".ts"])
def test_a_file_cut_in_the_middle_gives_what_it_has(big, suffix):
    v = Video(media.cut(big[suffix], .5))
    assert 3 < v.duration < 7
    if suffix != ".ts": assert abs(v.missing + v.duration - 10) < .1 and "cut off" in v._repr_markdown_()       # TS promises no length
    n = int(v.duration * 10)
    got = numbers(v.frames(10))
    assert sum(g != i for i, g in enumerate(got)) <= 3 and abs(len(got) - n) <= 1
    assert len(v.audio()) == round(v.duration * 16000) and abs(media.heard(v.audio(Span(1.1, 1.9)), 16000) - media.pitch(1)) < 4
    assert media.number(v.frames_at([1.5])[0]) == 15

def test_damage_is_counted_once_and_the_rest_is_right(big):
    for suffix in big:
        v = Video(media.spoil(big[suffix], .5, 6000))
        first = numbers(v.frames(10, Span(0, 10))); v.audio(); seen = v.damage
        assert seen > 0 and "damage" in v._repr_markdown_() and sum(g != i for i, g in enumerate(first)) <= 20 and len(first) == 100
        assert numbers(v.frames(10, Span(0, 10), batch=7)) == first and v.damage == seen
        v.audio(); assert v.damage == seen

@pytest.mark.parametrize("name", ["ein Fährschiff – 港.mp4", "it's \"quoted\".mp4", "a:b.mp4", "50%d.mp4", "-dash.mp4", "new\nline.mp4", "file:x.mp4", "two words .MP4", "no suffix"])
def test_names(folder, name, monkeypatch):
    src = media.make(folder / "plain-name.mp4", seconds=1)
    (folder / name).write_bytes(src.read_bytes())
    assert numbers(Video(folder / name).frames(1)) == [0] and Video(folder / name).id == Path(name).stem
    monkeypatch.chdir(folder); assert Video(name).size == (64, 48)

def test_a_file_that_goes_away(folder):
    v = Video(media.make(folder / "gone.mp4", seconds=1)); v.path.unlink()
    with pytest.raises(InputError, match="no such file"): list(v.frames(1))

def test_nothing_stays_open(film):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3): g = film.frames(10, batch=2); next(g); del g; film.audio(Span(1, 2)); film.clip(Span(1, 2), 3)
    assert len(os.listdir("/proc/self/fd")) == before

# --- fingerprint, quality, pictures for others --------------------------------------------------------------------------------------------------------

def test_fingerprint(folder, film):
    copy = folder / "copy.mkv"; copy.write_bytes(film.path.read_bytes())
    assert fingerprint(copy) == film.fingerprint and len(film.fingerprint) == 32
    data = bytearray(copy.read_bytes()); data[len(data) // 2] ^= 1; copy.write_bytes(data)
    assert fingerprint(copy) != film.fingerprint
    large = folder / "large"                                                   # 2 GB with holes: only the sampled blocks are read
    with open(large, "wb") as f: f.truncate(2 << 30)
    seen = {fingerprint(large)}
    for at in (0, 65535, (2 << 30) - 1, (2 << 30) - 65536):
        with open(large, "r+b") as f: f.seek(at); f.write(b"x")
        seen.add(fingerprint(large))
    with open(large, "r+b") as f: f.truncate((2 << 30) - 1)
    assert len(seen | {fingerprint(large)}) == 6
    large.unlink()

def caption(img, text, at, scale=.6, colour=(255, 255, 255)):
    import cv2
    return cv2.putText(img.copy(), text, at, cv2.FONT_HERSHEY_SIMPLEX, scale, colour, 1, cv2.LINE_AA)

def test_quality():
    import cv2
    from sklearn.datasets import load_sample_image
    flat = lambda *c: np.full((360, 640, 3), c, np.uint8)
    photo, noise = cv2.resize(load_sample_image("china.jpg"), (640, 360)), np.random.default_rng(0).normal(0, 4, (360, 640, 3))
    blocks = flat(70, 120, 160); blocks[250:], blocks[150:250, 100:200] = (60, 140, 60), (200, 60, 50)
    cases = [("dark", flat(0)), ("dark", flat(20)), ("dark", (flat(8) + noise).clip(0, 255).astype(np.uint8)), ("dark", (photo * .04).astype(np.uint8)), ("bright", flat(255)), ("bright", flat(240)),
             ("uniform", flat(128)), ("uniform", flat(20, 60, 160)), ("blurred", cv2.GaussianBlur(photo, (0, 0), 8)), ("ok", photo), ("ok", (photo * .3).astype(np.uint8)), ("ok", cv2.GaussianBlur(photo, (0, 0), 2)),
             ("ok", caption(flat(0), "10:45", (300, 180))), ("ok", caption(flat(255), "10:45", (300, 180), colour=(0, 0, 0))), ("ok", caption(flat(10), "The End", (280, 180), colour=(120, 120, 120))), ("ok", blocks)]
    want, imgs = zip(*cases)
    assert quality(np.stack(imgs)) == list(want)
    assert [quality(i[None])[0] for i in imgs] == list(want)                   # alone or together
    assert quality(np.stack([cv2.resize(i, (320, 180), interpolation=cv2.INTER_AREA) for i in imgs])) == list(want)
    assert quality(np.zeros((0, 10, 10, 3), np.uint8)) == [] and quality(np.zeros((1, 1, 1, 3), np.uint8)) == ["dark"]
    assert quality(flat(128)[None, :, ::-1]) == ["uniform"]                    # a view, not contiguous

def test_jpeg_and_thumbnail():
    import cv2
    img = np.zeros((40, 80, 3), np.uint8); img[:, :40, 0] = 220                # red on the left
    back = cv2.imdecode(np.frombuffer(jpeg(img), np.uint8), 1)[..., ::-1]
    assert back.shape == img.shape and np.abs(back[20, 20].astype(int) - [220, 0, 0]).max() < 12
    small = cv2.imdecode(np.frombuffer(jpeg(img, width=20), np.uint8), 1)
    assert small.shape == (10, 20, 3) and cv2.imdecode(np.frombuffer(jpeg(img, width=500), np.uint8), 1).shape == img.shape
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    assert jpeg(noise) == jpeg(noise) and len(jpeg(noise, quality=30)) < len(jpeg(noise, quality=95))
    assert thumbnail(img, caption="<b>").count("&lt;b&gt;") == 1

def test_importing_loads_no_decoder():
    code = "import reveal_kit.video, sys; print([m for m in ('av', 'cv2', 'torch', 'onnxruntime') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
