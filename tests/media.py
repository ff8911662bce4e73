"""Tiny real videos for tests, written with PyAV in some 50 ms each. Every frame carries its number in a grid of light and dark blocks, and every second of sound its own pitch."""
from fractions import Fraction
from pathlib import Path
import numpy as np

CLOCK = Fraction(1, 90000)                              # fine enough for 24000/1001, and what TS uses

def picture(
    n: int,                                             # the frame's number, 0 to 65535
    size=(64, 48),                                      # width, height
) -> np.ndarray:
    "Frame `n`: 16 blocks, the highest bit at the top left, drawn light grey and dark blue."
    w, h = size
    bits = np.array([n >> (15 - i) & 1 for i in range(16)], bool).reshape(4, 4)
    on = bits[np.arange(h) * 4 // h][:, np.arange(w) * 4 // w]
    return np.where(on[..., None], np.uint8([225, 225, 215]), np.uint8([20, 30, 70])).astype(np.uint8)

def number(frame: np.ndarray) -> int:
    "The number that `picture` drew, read from the middle of each block; whatever the size."
    h, w = frame.shape[:2]
    ys, xs = (np.arange(4) * 2 + 1) * h // 8, (np.arange(4) * 2 + 1) * w // 8
    return int(sum(int(frame[y, x].mean() > 120) << (15 - i) for i, (y, x) in enumerate((y, x) for y in ys for x in xs)))

def pitch(t: float) -> float: return 300.0 + 100 * int(t)      # Hz of the sound in second `int(t)`

def tone(seconds: float, rate: int, start: float = 0.0) -> np.ndarray:
    "A sine at 0.4 of full scale whose pitch goes up by 100 Hz each second."
    t = start + np.arange(round(seconds * rate)) / rate
    return (0.4 * np.sin(2 * np.pi * (300 + 100 * np.floor(t)) * t)).astype(np.float32)

def heard(samples: np.ndarray, rate: int) -> float:
    "The strongest frequency (Hz) of `samples`."
    return float(np.argmax(np.abs(np.fft.rfft(samples * np.hanning(len(samples))))) * rate / len(samples))

def make(
    path,                      # .mp4, .mov, .m4a, .mkv, .webm, .avi, .flv, .ts: the name decides the container
    seconds: float = 4,
    rate: float = 10,          # frames per second; a Fraction works too
    size=(64, 48),             # as stored, before rotation
    times=None,                # frame times in seconds for a variable frame rate; overrides `rate` and `seconds`
    start: float = 0.0,        # the first timestamp of everything
    rotate: int | None = None, # display matrix: degrees counterclockwise; a phone held upright writes -90
    flip: bool = False,        # mirror left and right in the display matrix as well
    pix_fmt: str = "",         # "yuv420p10le" for 10 bit; odd sizes default to yuv444p
    sound=True,                # True, False, or samples at `sound_rate`
    sound_rate: int = 44100,
    channels: int = 1,
    sound_delay: float = 0.0,  # seconds by which the sound starts after the picture (negative: before)
    hole=None,                 # (from, to) in seconds: no sound is written there
    video: bool = True,        # False: sound only
    gop: int = 10,             # frames between keyframes
    codec: str = "libx264",
    codec_options=None,
    faststart: bool = False,   # the index (moov) at the front
    draw=picture,              # draw(n, size) -> RGB array
    aspect=None,               # pixel aspect ratio, Fraction
) -> Path:
    "Write a video whose every property is chosen; returns `path`."
    import av
    path = Path(path); path.parent.mkdir(parents=True, exist_ok=True)
    times = [i / rate for i in range(round(float(seconds * rate)))] if times is None else list(times)
    if video: seconds = float(times[-1]) + (float(times[-1] - times[-2]) if len(times) > 1 else float(1 / rate))
    with av.open("file:" + str(path), "w", format={".m4v": "mp4", ".ts": "mpegts", ".mkv": "matroska", ".m4a": "mp4"}.get(path.suffix, path.suffix[1:] or "mp4"),
                 options={"movflags": "faststart"} if faststart else {}) as c:
        if video:
            v = c.add_stream(codec, rate=Fraction(rate).limit_denominator(1001), options={"g": str(gop), "crf": "20", "preset": "veryfast", "sc_threshold": "0", "threads": "1", **(codec_options or {})})
            v.width, v.height, v.pix_fmt = *size, pix_fmt or ("yuv420p" if size[0] % 2 == size[1] % 2 == 0 else "yuv444p")
            v.codec_context.time_base = CLOCK if codec != "mpeg4" else 1 / Fraction(rate).limit_denominator(1001)
            if aspect: v.codec_context.sample_aspect_ratio = aspect
            if rotate is not None or flip: v.set_display_rotation(rotate or 0, hflip=flip) if flip else v.set_display_rotation(rotate)
        if sound is not False:
            a = c.add_stream("libopus" if path.suffix == ".webm" else "mp3" if path.suffix == ".avi" else "aac", rate=sound_rate)
            a.layout = {1: "mono", 2: "stereo", 6: "5.1"}[channels]
            samples = tone(seconds, sound_rate) if sound is True else np.asarray(sound, np.float32)
        if video:
            for n, t in enumerate(times):
                f = av.VideoFrame.from_ndarray(draw(n, size), format="rgb24")
                tb = v.codec_context.time_base
                f.time_base, f.pts = tb, round(Fraction(start + t).limit_denominator(90000) / tb)
                c.mux(v.encode(f))
            c.mux(v.encode(None))
        if sound is not False:
            for k in range(0, len(samples), 1024):
                if hole and hole[0] <= k / sound_rate < hole[1]: continue
                block = np.repeat(samples[None, k:k+1024], channels, 0)
                f = av.AudioFrame.from_ndarray(np.ascontiguousarray(block), format="fltp", layout=a.layout.name)
                f.sample_rate, f.time_base, f.pts = sound_rate, Fraction(1, sound_rate), k + round((start + sound_delay) * sound_rate)
                c.mux(a.encode(f))
            c.mux(a.encode(None))
    return path

def cut(path, share: float = 0.5, to=None) -> Path:
    "The first `share` of the file's bytes, as a copy that stopped in the middle."
    path, data = Path(path), Path(path).read_bytes()
    to = Path(to or path.with_name("cut-" + path.name))
    to.write_bytes(data[:int(len(data) * share)])
    return to

def spoil(path, at: float = 0.5, length: int = 2000, to=None) -> Path:
    "A copy with `length` bytes around the share `at` of the file overwritten."
    path, data = Path(path), bytearray(Path(path).read_bytes())
    to, i = Path(to or path.with_name("spoilt-" + path.name)), int(len(data) * at)
    data[i:i+length] = np.random.default_rng(0).bytes(min(length, len(data) - i))
    to.write_bytes(data)
    return to
