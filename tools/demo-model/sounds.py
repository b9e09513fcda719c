"""Sounds that the demo model learns to hear, and questions about them with one right answer each.

`python sounds.py BANK.npz` speaks every word with many espeak-ng voices, speeds and pitches into a bank of 8-bit mu-law
clips at 16 kHz. Training scenes are put together from the bank: one word, two words, digits in a row, beeps, silence; with
pauses, noise, and changes of speed and loudness. Held-out voices and speeds are used for evaluation only.
"""

import math
import multiprocessing
import subprocess
import sys

import numpy as np

import facts
from phrases import ask

RATE = 16000
WORDS = facts.SPOKEN_DIGITS + facts.SPOKEN_COLOURS + facts.COMMANDS
ACCENTS = ["en-us", "en-gb", "en-gb-x-rp", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-us-nyc"]
HELD_OUT_ACCENTS = ["en-gb-scotland", "en-029"]
VARIANTS = """m1 m2 m3 m5 m6 m8 f1 f2 f4 f5 Alex Alicia Andy Annie Denis Diogo Gene Henrique Hugo Lee Marco Mario Michael Mike Mr adam
anika antonio belinda benjamin boris caleb david ed edward2 grandma grandpa iven iven3 john kaukovalta klatt klatt3 klatt4 linda
marcelo max michel miguel norbert pablo paul pedro quincy rob sandro shelby steph steph3 travis victor zac""".split()
HELD_OUT_VARIANTS = ["m4", "m7", "f3", "Andrea", "Gene2", "edward", "iven2", "klatt2", "robert", "steph2"]
SPEEDS = [115, 130, 145, 160, 175, 190, 210, 230]
HELD_OUT_SPEEDS = [137, 152, 168, 183, 200]


def speak(text, voice, speed, pitch):
    """float32 at 16 kHz, trimmed of silence."""
    raw = subprocess.run(["espeak-ng", "-v", voice, "-s", str(speed), "-p", str(pitch), "--stdout", text], capture_output=True, check=True).stdout
    rate = int.from_bytes(raw[24:28], "little")
    x = np.frombuffer(raw[44:len(raw) - (len(raw) - 44) % 2], np.int16).astype(np.float64) / 32768
    loud = np.flatnonzero(np.abs(x) > 0.005)
    if len(loud) == 0:
        raise ValueError(f"{voice} says nothing for {text}")
    x = x[max(0, loud[0] - rate // 50):loud[-1] + rate // 25]
    return resample(x, rate, RATE).astype(np.float32)


def resample(x, a, b):
    """Band-limited, by cutting or extending the spectrum."""
    n = int(round(len(x) * b / a))
    pad = 512
    x = np.concatenate([np.zeros(pad), x, np.zeros(pad + (-len(x)) % 64)])
    m = int(round(len(x) * b / a))
    s = np.fft.rfft(x)
    k = m // 2 + 1
    s = s[:k] if k <= len(s) else np.concatenate([s, np.zeros(k - len(s))])
    y = np.fft.irfft(s, m) * (m / len(x))
    start = int(round(pad * b / a))
    return y[start:start + n]


def mu_encode(x):
    y = np.sign(x) * np.log1p(255 * np.abs(np.clip(x, -1, 1))) / math.log(256)
    return np.round((y + 1) * 127.5).astype(np.uint8)


_MU = None


def mu_decode(q):
    global _MU
    if _MU is None:
        y = np.arange(256) / 127.5 - 1
        _MU = (np.sign(y) * (np.power(256.0, np.abs(y)) - 1) / 255).astype(np.float32)
    return _MU[q]


def one_voice(job):
    voice, speed, pitch = job
    out = []
    for w in WORDS:
        x = speak(w, voice, speed, pitch)
        out.append(mu_encode(0.5 * x / np.abs(x).max()))
    return out


def build_bank(path, n_voices, seed=7):
    """n_voices combinations of accent, variant, speed and pitch, each saying every word."""
    rng = np.random.default_rng(seed)
    jobs = [(f"{ACCENTS[i % len(ACCENTS)]}+{VARIANTS[(i * 7) % len(VARIANTS)]}", int(rng.choice(SPEEDS)), int(rng.integers(15, 86)))
            for i in range(n_voices)]
    with multiprocessing.Pool() as pool:
        clips = [x for voice in pool.map(one_voice, jobs, chunksize=4) for x in voice]
    starts = np.cumsum([0] + [len(x) for x in clips])
    # Differences of neighbours pack into two thirds of the bytes.
    np.savez_compressed(path, change=np.diff(np.concatenate(clips), prepend=np.uint8(0)), starts=starts)
    print(f"{n_voices} voices, {len(clips)} clips, {starts[-1] / RATE:.0f} s")


class Bank:
    def __init__(self, path):
        with np.load(path) as f:
            self.data, self.starts = np.cumsum(f["change"], dtype=np.uint8), f["starts"]
        self.n_voices = (len(self.starts) - 1) // len(WORDS)

    def clip(self, voice, word):
        i = voice * len(WORDS) + WORDS.index(word)
        return mu_decode(self.data[self.starts[i]:self.starts[i + 1]])


def quiet(seconds):
    return np.zeros(int(seconds * RATE), np.float32)


def beeps(rng, n, tone=None):
    """n tones of one pitch with equal gaps."""
    f = tone or math.exp(rng.uniform(math.log(250), math.log(2500)))
    length, gap = rng.uniform(0.08, 0.25), rng.uniform(0.12, 0.4)
    t = np.arange(int(length * RATE)) / RATE
    x = np.sin(2 * np.pi * f * t)
    if rng.random() < 0.3:
        x = np.sign(x) * 0.5
    ramp = np.minimum(1, np.minimum(t, t[-1] - t) / 0.005)
    x = (0.5 * x * ramp).astype(np.float32)
    parts = []
    for i in range(n):
        parts += [x, quiet(gap if i < n - 1 else 0)]
    return np.concatenate(parts)


HEAR = "what do you hear|what is this|what is in the (sound|recording|clip)|listen|describe the sound|tell me what you hear|what was that|what can you hear"
SAID = "what did I say|what was said|transcribe (this|it|the audio|)|write down what you hear|(which|what) word was (it|that|said)|what word do you hear|repeat what you heard|write what was said"


def general_question(rng, special):
    r = rng.random()
    if r < 0.12:
        return ""
    return ask(rng, HEAR) if r < 0.4 else ask(rng, special)


def speech_scene(rng, say_word):
    """say_word(word) -> samples, always in the same voice. Returns samples, question, answer."""
    kind = rng.random()
    if kind < 0.5:
        words = [rng.choice(WORDS)]
    elif kind < 0.8:
        words = [rng.choice(facts.SPOKEN_DIGITS) for _ in range(rng.randint(2, 4))]
    else:
        words = rng.sample(WORDS, 2)
    parts = [say_word(words[0])]
    for w in words[1:]:
        parts += [quiet(rng.uniform(0.08, 0.35)), say_word(w)]
    if len(words) > 1 and all(w in facts.SPOKEN_DIGITS for w in words) and rng.random() < 0.35:
        q = ask(rng, "(which|what) number (do you hear|was said|is it|was it)|write (the number|the digits)( in digits|)|what are the digits")
        return np.concatenate(parts), q, f"The number is {''.join(str(facts.ONES.index(w)) for w in words)}."
    return np.concatenate(parts), general_question(rng, SAID), f'I hear "{" ".join(words)}".'


def beep_scene(rng):
    n = rng.randint(1, 6)
    q = general_question(rng, "how many (beeps|tones) (do you hear|are there|were there)|count the (beeps|tones)|number of beeps")
    return beeps(rng, n), q, f"I hear {n} beep{'s' if n > 1 else ''}."


def silence_scene(rng):
    q = general_question(rng, SAID if rng.random() < 0.5 else HEAR)
    return quiet(rng.uniform(0.2, 2.0)), q, "I hear nothing."


def scene(rng, bank):
    """A training scene: float32 samples, question, answer."""
    r = rng.random()
    if r < 0.76:
        voice = rng.randrange(bank.n_voices)
        x, q, a = speech_scene(rng, lambda w: bank.clip(voice, w))
        speed = rng.uniform(0.87, 1.15)
        x = np.interp(np.arange(0, len(x) - 1, speed), np.arange(len(x)), x).astype(np.float32)
    elif r < 0.94:
        x, q, a = beep_scene(rng)
    else:
        x, q, a = silence_scene(rng)
    x = np.concatenate([quiet(rng.uniform(0, 0.4)), x, quiet(rng.uniform(0.05, 0.5))]) * (2 * 10 ** rng.uniform(-1.0, 0))
    if rng.random() < 0.6:
        level = 10 ** rng.uniform(-4.5, -2.3)
        x = x + level * np.random.default_rng(rng.getrandbits(32)).standard_normal(len(x))
    return np.clip(x, -1, 1).astype(np.float32), q, a


def frames(n):
    """Mel frames of n samples."""
    return 0 if n < 161 else (n + 160 - 321) // 160 + 1


def soft_tokens(n):
    f = frames(n)
    return 0 if f == 0 else ((f - 1) // 2) // 2 + 1


def mel_filters():
    """[257, 128]: triangles between points equally spaced on the HTK mel scale, 0 to 8000 Hz."""
    mel = np.linspace(0, 2595 * math.log10(1 + 8000 / 700), 130)
    hz = 700 * (10 ** (mel / 2595) - 1)
    f = np.arange(257) * 31.25
    up = (f[:, None] - hz[:-2]) / (hz[1:-1] - hz[:-2])
    down = (hz[2:] - f[:, None]) / (hz[2:] - hz[1:-1])
    return np.maximum(0, np.minimum(up, down))


if __name__ == "__main__":
    build_bank(sys.argv[1] if len(sys.argv) > 1 else "bank.npz", int(sys.argv[2]) if len(sys.argv) > 2 else 130)
