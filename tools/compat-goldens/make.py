#!/usr/bin/env python3
"""Makes tests/fixtures/compat: what llama.cpp and Ollama make of pictures and sounds, for `--compat`.

    pip install xllamacpp numpy gguf        # xllamacpp carries llama.cpp, prebuilt
    tests/unpack-fixtures.sh                # the small models, into build/fixtures
    tools/compat-goldens/make.py

llama.cpp's numbers come from llama.cpp (mtmd.py), run on copies of the projector files whose 16-bit weights are written as 32 bits:
the values are the same, but llama.cpp then does not round activations to 16 bits before each product.

Ollama's numbers come from its documented differences computed in numpy (towers.py), as no library of its carries them. Before
that the same numpy code must give Hugging Face's goldens with the definition's rules, and llama.cpp's results with those of
llama.cpp; what was found is printed.

Pictures and sounds are formulas (picture() and sound() here, compat_picture() and compat_sound() in tests/compat_test.c), so the
files hold results only: of each medium a few soft tokens, `KIND.NAME.rows` and `KIND.NAME.soft`.
"""
import lzma
import os
import tempfile

import gguf
import numpy as np

import mtmd
import towers
from towers import RULES

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FIXTURES = os.path.join(ROOT, "build/fixtures")
MODELS = {"tiny-mm": ("tiny-e2b.Q4_K_M", 256), "micro-mm31": ("micro-31b.F16", 64)}  # projector: its text model, that one's width
PICTURES = {
    "tiny-mm": [(640, 480), (100, 100), (33, 21), (1, 1), (300, 100), (5, 700), (2000, 1500)],
    "micro-mm31": [(640, 480), (300, 100)],
}
SOUNDS = [2, 160, 161, 32000, 480160, 500000]  # samples
OLLAMA_PICTURES = [(100, 100), (400, 20), (900, 1200)]
OLLAMA_SOUNDS = [321, 32000]
N_ROWS = 8  # soft tokens kept of a medium


def picture(width, height):
    x, y, c = np.arange(width)[None, :, None], np.arange(height)[:, None, None], np.arange(3)
    return (((((3 * x + 5 * y) >> 3) ^ (x * y >> 9)) + 61 * c) & 255).astype(np.uint8)


def sound(n):
    """A rising saw whose strength halves every 2048 samples down to a 2048th and starts again: loud and nearly silent bands."""
    i = np.arange(n, dtype=np.int64)
    return ((((i * (i >> 6)) & 8191) - 4096) / 2.0 ** (15 + (i >> 11) % 12)).astype(np.float32)


def sizes(model_limit):
    """Widths and heights of all kinds of ratio, small and large, and those at which a size rule turns."""
    random = np.random.default_rng(4)
    out = [(1, 1), (24, 24), (71, 72), (72, 72), (384, 432), (1584, 1584), (1632, 1584), (1536, 1680), (4000, 3000)]
    while len(out) < 240:
        area, ratio = 10 ** random.uniform(0, 6.7), 10 ** random.uniform(-1.2, 1.2)
        width, height = (max(1, round(np.sqrt(area * r))) for r in (ratio, 1 / ratio))
        if max(width, height) < model_limit:
            out.append((width, height))
    return out


def widen(source, target):
    """A copy of a projector file with every tensor in 32 bits."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            writer.add_key_value(field.name, field.contents(), field.types[0], field.types[1] if len(field.types) > 1 else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.asarray(tensor.data, np.float32).reshape([int(n) for n in reversed(tensor.shape)]))
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def save(name, source, tensors):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name)
        writer = gguf.GGUFWriter(path, "golden")
        writer.add_string("golden.source", source)
        for key, values in tensors.items():
            writer.add_tensor(key, np.ascontiguousarray(values))
        finish(writer)
        target = os.path.join(ROOT, "tests/fixtures/compat", name + ".xz")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(path, "rb") as plain, open(target, "wb") as packed:
            packed.write(lzma.compress(plain.read(), preset=9 | lzma.PRESET_EXTREME))
        print(f"{name}: {os.path.getsize(target)} bytes")


def keep(tensors, name, soft, counts):
    rows = np.unique(np.linspace(0, len(soft) - 1, N_ROWS).astype(np.int32))
    tensors[name + ".tokens"] = np.array(counts, np.int32)
    tensors[name + ".rows"] = rows
    tensors[name + ".soft"] = soft[rows].astype(np.float32)


def golden(name):
    tensors = gguf.GGUFReader(os.path.join(FIXTURES, "media", name)).tensors
    return {t.name: np.asarray(t.data).reshape([int(n) for n in reversed(t.shape)]) for t in tensors}


def check(what, difference, limit):
    print(f"{what}: {difference:.2g}")
    assert difference < limit, f"{limit:g} is allowed"


def check_numpy(weights):
    """The definition's rules give Hugging Face's numbers."""
    seen, heard, rule = golden("vision-tiny-mm-landscape.gguf"), golden("audio-tiny-mm-speech.gguf"), RULES["reference"]
    prepared = towers.prepare_reference(seen["raw"].view(np.uint8), 70)
    check("numpy and Hugging Face, bytes of a picture", np.abs(prepared - seen["resized"].view(np.uint8).astype(int)).max(), 1)
    check("numpy and Hugging Face, a picture", np.abs(towers.see(weights, rule, prepared) - seen["soft"]).max(), 1e-5)
    mel = towers.features(rule, heard["pcm"].astype(np.float32) / 32768)
    check("numpy and Hugging Face, features of a sound", np.abs(mel - heard["mel"][: len(mel)]).max(), 1e-5)
    soft = towers.hear(weights, rule, mel)[heard["soft.rows"]]
    check("numpy and Hugging Face, a sound", np.abs(soft - heard["soft"]).max(), 1e-5)


def make_llama_cpp(model):
    text, width = MODELS[model]
    projector = os.path.join(FIXTURES, "models", model + ".mmproj-F16.gguf")
    weights, rule, tensors = towers.Weights(projector), RULES["llama.cpp"], {}
    with tempfile.TemporaryDirectory() as folder:
        widen(projector, os.path.join(folder, "wide.gguf"))
        library = mtmd.Towers(os.path.join(FIXTURES, "models", text + ".gguf"), os.path.join(folder, "wide.gguf"), width)
        for w, h in PICTURES[model]:
            (soft,) = library.run(picture(w, h))[1]
            keep(tensors, f"picture.{w}x{h}", soft, [len(soft)])
            if len(soft) < 300:  # numpy's attention takes all patches squared
                mine = towers.see(weights, rule, towers.prepare_llama_cpp(picture(w, h)))
                check(f"numpy and llama.cpp, {model}, {w} x {h}", np.abs(mine - soft).max(), 2e-3)
        if model == "tiny-mm":
            for n in SOUNDS:
                pieces = library.run(sound(n))[1]
                keep(tensors, f"sound.{n}", np.concatenate(pieces), [len(piece) for piece in pieces])
            # The ids around a sound of two pieces (-1: a soft token), without what the prompt says before and after.
            tensors["sound.ids"] = np.array(library.run(sound(480160), encoded=False)[0][1:-1], np.int32)
            mine = towers.hear(weights, rule, towers.features(rule, sound(32000)))
            check("numpy and llama.cpp, a sound", np.abs(mine - library.run(sound(32000))[1][0]).max(), 2e-3)
            counted = [(w, h, library.run(np.zeros((h, w, 3), np.uint8), encoded=False)[1][0]) for w, h in sizes(5000)]
            tensors["sizes"] = np.array(counted, np.int32)
    save(f"llama.cpp-{model}.gguf", "llama.cpp as of xllamacpp " + mtmd.VERSION, tensors)


def make_ollama(weights):
    tensors, rule = {}, RULES["ollama"]
    for w, h in OLLAMA_PICTURES:
        prepared = towers.prepare_ollama(picture(w, h))
        soft = towers.see(weights, rule, prepared)
        keep(tensors, f"picture.{w}x{h}", soft, [len(soft)])
        tensors[f"picture.{w}x{h}.resized"] = prepared[::97].view(np.int8)
    for n in OLLAMA_SOUNDS:
        mel = towers.features(rule, sound(n))
        soft = towers.hear(weights, rule, mel)
        keep(tensors, f"sound.{n}", soft, [len(soft)])
        tensors[f"sound.{n}.mel"] = mel[::19].astype(np.float32)
    fill = lambda w, h: [max(48, side) for side in towers.fill_budget(w, h, 280)]
    tensors["sizes"] = np.array([(w, h, *fill(w, h)) for w, h in sizes(5000)], np.int32)
    save("ollama-tiny-mm.gguf", "Ollama's documented differences, computed in numpy", tensors)


def main():
    weights = towers.Weights(os.path.join(FIXTURES, "models/tiny-mm.mmproj-F16.gguf"))
    check_numpy(weights)
    for model in MODELS:
        make_llama_cpp(model)
    make_ollama(weights)


main()
