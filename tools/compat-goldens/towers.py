"""Gemma 4's picture and sound towers in numpy, f64, written from their definition, with the differences of other implementations.

Nothing here is fast, and nothing is shared with the C sources: it is their judge. RULES says how each implementation differs; the
first is Hugging Face's, the definition of the model.
"""
from types import SimpleNamespace

import numpy as np
from gguf import GGUFReader

CELL, PATCH, POOL = 48, 16, 3  # pixels of a soft token, of a patch; patches pooled on each side
BANDS, FRAME, HOP, RATE = 128, 320, 160, 16000

RULES = {
    "reference": SimpleNamespace(quick_gelu=False, norm_after=False, add_floor=True, shift=0.0, n_fft=512, n_left=160, span=12),
    "llama.cpp": SimpleNamespace(quick_gelu=True, norm_after=False, add_floor=False, shift=0.0, n_fft=512, n_left=160, span=12),
    "ollama": SimpleNamespace(quick_gelu=True, norm_after=True, add_floor=False, shift=0.5, n_fft=1024, n_left=0, span=13),
}


class Weights:
    """Tensors of a projector file as f64; axes slowest first."""

    def __init__(self, path):
        self.reader = GGUFReader(path)
        self.tensors = {t.name: t for t in self.reader.tensors}

    def __contains__(self, name):
        return name in self.tensors

    def __getitem__(self, name):
        tensor = self.tensors[name]
        return np.asarray(tensor.data, np.float64).reshape([int(n) for n in reversed(tensor.shape)])

    def number(self, key):
        return self.reader.fields[key].contents()

    def bound(self, name, default):
        return float(self[name].reshape(-1)[0]) if name in self else default

    def linear(self, name, x):
        """A product whose input and output are clamped where the file has bounds."""
        big = float(np.finfo(np.float32).max)
        x = np.clip(x, self.bound(name + ".input_min", -big), self.bound(name + ".input_max", big))
        return np.clip(x @ self[name + ".weight"].T, self.bound(name + ".output_min", -big), self.bound(name + ".output_max", big))


def rms(x, weight=1.0):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weight


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


# --- pictures -------------------------------------------------------------------------------------------------------------------


def resize_axis(pixels, n_out, axis, cubic, bits):
    """One pass with antialiasing; integer weights, of 22 bits or (bits = 16) of as many as keep the largest below 2^15."""
    n_in = pixels.shape[axis]
    if n_in == n_out:
        return pixels
    scale, support = n_in / n_out, 2.0 if cubic else 1.0
    stretch = max(scale, 1.0)
    weights = np.zeros((n_out, n_in))
    for o in range(n_out):
        centre = (o + 0.5) * scale
        taps = np.arange(max(0, int(centre - support * stretch + 0.5)), min(n_in, int(centre + support * stretch + 0.5)))
        x = np.abs((taps - centre + 0.5) / stretch)
        if cubic:
            k = np.where(x < 1, (1.5 * x - 2.5) * x * x + 1, np.where(x < 2, -0.5 * (((x - 5) * x + 8) * x - 4), 0))
        else:
            k = np.maximum(0, 1 - x)
        weights[o, taps] = k / k.sum()
    precision = 22
    if bits == 16:
        precision = max(p for p in range(23) if int(weights.max() * 2**p + 0.5) < 32768)
    whole = np.trunc(weights * 2**precision + np.where(weights < 0, -0.5, 0.5)).astype(np.int64)
    sums = np.tensordot(whole, pixels.astype(np.int64), axes=([1], [axis]))
    return np.moveaxis(np.clip((sums + (1 << (precision - 1))) >> precision, 0, 255), 0, axis).astype(np.uint8)


def resize(pixels, width, height, cubic=True, bits=22):
    return resize_axis(resize_axis(pixels, width, 1, cubic, bits), height, 0, cubic, bits)


def fill_budget(width, height, n_tokens):
    """The definition's size for ordinary ratios: the largest multiples of 48 that the budget holds."""
    factor = np.sqrt(n_tokens * POOL**2 * PATCH**2 / (width * height))
    return int(factor * width // CELL) * CELL, int(factor * height // CELL) * CELL


def prepare_reference(pixels, n_tokens):
    height, width = pixels.shape[:2]
    return resize(pixels, *fill_budget(width, height, n_tokens), bits=16)


def prepare_ollama(pixels):
    """280 tokens, each side at least one cell, stretched, bilinear."""
    height, width = pixels.shape[:2]
    return resize(pixels, *(max(CELL, side) for side in fill_budget(width, height, 280)), cubic=False)


def prepare_llama_cpp(pixels):
    """Near the picture's own size (70 to 1120 tokens), in the middle of black. All sizes in f32."""
    height, width = pixels.shape[:2]
    low, high = 70 * CELL**2, 1120 * CELL**2
    cells = lambda side, rounding: int(rounding(np.float32(side) / np.float32(CELL))) * CELL
    half_up = lambda x: np.floor(x + np.float32(0.5))
    w, h = (max(CELL, cells(side, half_up)) for side in (width, height))
    if w * h > high:
        beta = np.sqrt(np.float32(width * height) / np.float32(high))
        w, h = (max(CELL, cells(side / beta, np.floor)) for side in (width, height))
    elif w * h < low:
        beta = np.sqrt(np.float32(low) / np.float32(width * height))
        w, h = (cells(side * beta, np.ceil) for side in (width, height))
    scale = min(np.float32(w) / np.float32(width), np.float32(h) / np.float32(height))
    inner_w, inner_h = (min(int(np.ceil(np.float32(a) * scale)), b) for a, b in ((width, w), (height, h)))
    canvas = np.zeros((h, w, 3), np.uint8)
    left, top = (w - inner_w) // 2, (h - inner_h) // 2
    canvas[top : top + inner_h, left : left + inner_w] = resize(pixels, inner_w, inner_h)
    return canvas


def rotate(x, positions):
    """Pairs (i, i + n / 2) turn by position * 100^(-2 i / n). x [patch, head, n]."""
    half = x.shape[-1] // 2
    angle = positions[:, None, None] * 100.0 ** (-2.0 * np.arange(half) / (2 * half))
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=-1)


def see(w, rule, prepared):
    """Soft tokens of a prepared picture [height, width, 3]."""
    rows, cols = prepared.shape[0] // PATCH, prepared.shape[1] // PATCH
    patches = (2.0 * prepared / 255 - 1).reshape(rows, PATCH, cols, PATCH, 3).transpose(0, 2, 4, 1, 3).reshape(rows * cols, -1)
    row, col = np.divmod(np.arange(rows * cols), cols)
    positions = w["v.position_embd.weight"]
    x = patches @ w["v.patch_embd.weight"].reshape(-1, 3 * PATCH**2).T + positions[0, col] + positions[1, row]
    n_heads, width = w.number("clip.vision.attention.head_count"), x.shape[1]
    for i in range(w.number("clip.vision.block_count")):
        p = f"v.blk.{i}."
        norm = lambda name: w[p + name + ".weight"]
        a = rms(x, norm("ln1"))
        q, k, v = (w.linear(p + name, a).reshape(len(a), n_heads, -1) for name in ("attn_q", "attn_k", "attn_v"))
        q, k, v = rms(q, norm("attn_q_norm")), rms(k, norm("attn_k_norm")), rms(v)
        half = q.shape[-1] // 2
        q, k = (np.concatenate([rotate(t[..., :half], col), rotate(t[..., half:], row)], axis=-1) for t in (q, k))
        o = np.stack([softmax(q[:, h] @ k[:, h].T) @ v[:, h] for h in range(n_heads)], axis=1).reshape(len(a), width)
        x = x + rms(w.linear(p + "attn_out", o), norm("attn_post_norm"))
        m = rms(x, norm("ln2"))
        g = w.linear(p + "ffn_gate", m)
        gelu = 0.5 * g * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3)))
        f = w.linear(p + "ffn_down", (g * sigmoid(1.702 * g) if rule.quick_gelu else gelu) * w.linear(p + "ffn_up", m))
        x = x + rms(f, norm("ffn_post_norm"))
        if p + "out_scale.weight" in w:
            x = x * w[p + "out_scale.weight"]
    x = x.reshape(rows // POOL, POOL, cols // POOL, POOL, width).mean(axis=(1, 3)).reshape(-1, width) * np.sqrt(width)
    if "v.std_bias" in w:
        x = (x - w["v.std_bias"]) * w["v.std_scale"]
    return rms(w.linear("mm.input_projection", x)) if rule.norm_after else w.linear("mm.input_projection", rms(x))


# --- sounds ---------------------------------------------------------------------------------------------------------------------


def features(rule, samples):
    """Log-mel features [frame, band] of f32 samples."""
    samples = np.concatenate([np.zeros(rule.n_left, np.float32), samples.astype(np.float32)])
    n = (len(samples) - FRAME - 1) // HOP + 1
    window = (0.5 - 0.5 * np.cos(2 * np.pi * (np.arange(FRAME) + rule.shift) / FRAME)).astype(np.float32)
    frames = np.stack([samples[HOP * i : HOP * i + FRAME] * window for i in range(n)]).astype(np.float64)
    spectrum = np.abs(np.fft.rfft(frames, rule.n_fft, axis=1))
    points = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), BANDS + 2) / 2595) - 1)
    hz = np.arange(rule.n_fft // 2 + 1) * RATE / rule.n_fft
    low, mid, high = (points[i : i + BANDS, None] for i in range(3))
    mel = spectrum @ np.maximum(0, np.minimum((hz - low) / (mid - low), (high - hz) / (high - mid))).T
    return np.log(mel + 0.001) if rule.add_floor else np.log(np.maximum(mel, 0.001))


def halve(w, name, x):
    """A convolution of 3 x 3 with stride 2, a layer norm over channels, ReLU. x [channel, time, frequency]."""
    kernel, (_, n_t, n_f) = w[name + ".weight"], x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    at = lambda i, j: padded[:, i : i + n_t : 2, j : j + n_f : 2]
    y = sum(np.tensordot(kernel[:, :, i, j], at(i, j), axes=([1], [0])) for i in range(3) for j in range(3))
    y = y - y.mean(axis=0)
    return np.maximum(0, y / np.sqrt((y * y).mean(axis=0) + 1e-6) * w[name + ".norm.weight"].reshape(-1, 1, 1))


def attend(w, p, rule, a, n_heads):
    """Each step sees itself and span - 1 steps before it, with learned relative positions."""
    n, width = a.shape
    q, k, v = (w.linear(p + name, a).reshape(n, n_heads, -1) for name in ("attn_q", "attn_k", "attn_v"))
    head = width // n_heads
    q = q * head**-0.5 / np.log(2) * w[p + "per_dim_scale.weight"].reshape(-1)
    k = k * np.log(1 + np.e) / np.log(2)
    half = width // 2
    angle = np.arange(rule.span)[:, None] * np.exp(-np.arange(half) * np.log(10000) / (half - 1))
    relative = (np.concatenate([np.sin(angle), np.cos(angle)], axis=1) @ w[p + "attn_k_rel.weight"].T).reshape(-1, n_heads, head)
    out = np.zeros_like(q)
    for i in range(n):
        seen = np.arange(max(0, i - rule.span + 1), i + 1)
        scores = np.einsum("hd,jhd->hj", q[i], k[seen] + relative[i - seen])
        out[i] = np.einsum("hj,jhd->hd", softmax(50 * np.tanh(scores / 50)), v[seen])
    return out.reshape(n, width)


def hear(w, rule, mel):
    """Soft tokens of features."""
    x = halve(w, "a.conv1d.1", halve(w, "a.conv1d.0", mel[None]))
    x = w.linear("a.input_projection", x.transpose(1, 2, 0).reshape(x.shape[1], -1))
    for i in range(w.number("clip.audio.block_count")):
        p = f"a.blk.{i}."
        norm = lambda name: w[p + name + ".weight"]

        def feed_forward(x, suffix):
            u = w.linear(p + "ffn_up" + suffix, rms(x, norm("ffn_norm" + suffix)))
            u = w.linear(p + "ffn_down" + suffix, u * sigmoid(u))
            return x + 0.5 * rms(u, norm("ffn_post_norm" + suffix))

        x = feed_forward(x, "")
        a = attend(w, p, rule, rms(x, norm("attn_pre_norm")), w.number("clip.audio.attention.head_count"))
        x = x + rms(w.linear(p + "attn_out", a), norm("attn_post_norm"))
        c, gate = np.split(w.linear(p + "conv_pw1", rms(x, norm("conv_norm"))), 2, axis=1)
        kernel = w[p + "conv_dw.weight"]
        padded = np.pad(c * sigmoid(gate), ((4, 0), (0, 0)))
        c = rms(sum(kernel[:, j] * padded[j : j + len(x)] for j in range(5)), norm("norm_conv"))
        x = x + w.linear(p + "conv_pw2", c * sigmoid(c))
        x = rms(feed_forward(x, "_1"), norm("ln2"))
    y = x @ w["a.pre_encode.out.weight"].T + w["a.pre_encode.out.bias"]
    return w.linear("mm.a.input_projection", rms(y))
