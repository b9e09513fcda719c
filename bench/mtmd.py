#!/usr/bin/env python3
"""Times llama.cpp's vision and audio towers (mtmd) beside carat's on the processor: a picture of 768 x 768 pixels, 10 s of sound.

    pip install xllamacpp                   # llama.cpp, prebuilt
    ./run build && cmake --build build/release --target towers_bench
    bench/mtmd.py [--rounds N] [--threads N]

Both read the same projector file (`carat synth e2b --mmproj`: E2B's shapes, F16, random weights). The rounds alternate; in each
both encode three pictures and three sounds, of which the median counts. carat's time goes from pixels and samples to soft tokens
(bench/towers.c); llama.cpp's is what its log says of its encoder, without its preprocessing.
"""
import argparse
import base64
import os
import random
import re
import statistics
import struct
import subprocess
import sys
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RELEASE = os.path.join(ROOT, "build/release")
FOLDER = os.path.join(ROOT, "build/bench")
TEXT, TOWERS = os.path.join(FOLDER, "towers-text.gguf"), os.path.join(FOLDER, "towers-mmproj.gguf")
REPEAT, PIXELS, SECONDS, RATE = 3, 768, 10, 16000


def make_files():
    os.makedirs(FOLDER, exist_ok=True)
    carat = os.path.join(RELEASE, "carat")
    if not os.path.exists(TEXT):  # the text model only receives the soft tokens: few layers do
        vocabulary = os.path.join(ROOT, "models/carat-demo.gguf")
        subprocess.run([carat, "synth", "e2b", TEXT, "--layers", "4", "--vocab-from", vocabulary], check=True)
    if not os.path.exists(TOWERS):
        subprocess.run([carat, "synth", "e2b", TOWERS, "--mmproj"], check=True)


def png(seed):
    """A picture of coloured noise, as a PNG file."""
    noise = random.Random(seed)
    rows = b"".join(b"\0" + noise.randbytes(3 * PIXELS) for _ in range(PIXELS))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", PIXELS, PIXELS, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def wav(seed):
    """Quiet noise, as a WAV file of 16-bit mono."""
    noise = random.Random(seed)
    samples = struct.pack(f"<{RATE * SECONDS}h", *(noise.randrange(-3000, 3000) for _ in range(RATE * SECONDS)))
    form = struct.pack("<IHHIIHH", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    body = b"WAVEfmt " + form + b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", len(body)) + body


def serve_peer(threads, seed):
    """In a process of its own: llama.cpp takes pictures and sounds; its log on stderr has the times."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.mmproj.path = TEXT, TOWERS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_ctx, params.n_parallel, params.n_predict, params.verbosity = 2048, 1, 1, 5
    params.n_gpu_layers, params.use_jinja = 0, False
    server = xllamacpp.Server(params)

    def text(data):
        return base64.b64encode(data).decode()

    for i in range(seed, seed + REPEAT):
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + text(png(i))}}
        sound = {"type": "input_audio", "input_audio": {"data": text(wav(i)), "format": "wav"}}
        for part in (image, sound):
            content = [part, {"type": "text", "text": "?"}]
            server.handle_chat_completions({"messages": [{"role": "user", "content": content}], "max_tokens": 1})


def time_peer(threads, seed):
    """Median milliseconds of a picture and of a sound, from the time stamps of the log (minutes.seconds.milli.micro)."""
    command = [sys.executable, __file__, "--peer", str(seed), "--threads", str(threads)]
    log = subprocess.run(command, capture_output=True, text=True, errors="replace").stderr
    times = {"image": [], "audio": []}
    begin = end = 0.0
    for stamp, message in re.findall(r"^(\d+\.\d+\.\d+\.\d+) \w (.*)$", log, re.MULTILINE):
        minutes, seconds, milli, micro = map(int, stamp.split("."))
        now = 6e4 * minutes + 1e3 * seconds + milli + micro / 1e3
        if "mtmd_batch_encode_impl: encoding batch" in message:
            begin = now
        elif "clip_encode: output embedding shape" in message:
            end = now
        elif found := re.match(r"(image|audio) decoded", message):
            times[found[1]].append(end - begin)
    if any(len(t) < REPEAT for t in times.values()):
        sys.exit("llama.cpp's log does not tell the times of the encoder:\n" + log[-3000:])
    return [statistics.median(t) for t in times.values()]


def time_ours(threads):
    command = [os.path.join(RELEASE, "towers_bench"), TOWERS, "--threads", str(threads), "--repeat", str(REPEAT)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(t) for t in re.findall(r"median ([\d.]+) ms", out)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--peer", type=int)
    arguments = parser.parse_args()
    if arguments.peer is not None:
        return serve_peer(arguments.threads, arguments.peer)
    make_files()
    ours, theirs = [], []
    for i in range(arguments.rounds):
        ours.append(time_ours(arguments.threads))
        theirs.append(time_peer(arguments.threads, 1 + i * REPEAT))
    print(f"{arguments.threads} threads, medians of {arguments.rounds} rounds\n\n| what | carat | llama.cpp | ratio |\n|---|---|---|---|")
    for k, what in enumerate((f"picture of {PIXELS} x {PIXELS}", f"sound of {SECONDS} s")):
        a, b = (statistics.median(round_[k] for round_ in times) for times in (ours, theirs))
        print(f"| {what} | {a:.0f} ms | {b:.0f} ms | {b / a:.2f} |")


main()
