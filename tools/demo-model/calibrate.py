"""Bounds for the towers' clipped linears, measured on pictures and sounds that the curriculum makes.

The bounds of the published model come from its training. Here they are the range seen over a sample, widened a little, so
that ordinary inputs are never clipped and extreme ones are.
"""

import os
import random

import numpy as np
import torch

import model as demo
import pictures
import sounds

WIDEN = 1.25
BANK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data/bank.npz")


def sample_pictures(rng, n, budget):
    rows = [pictures.patches(pictures.scene(rng)[0], budget)[:2] for _ in range(n)]
    pixels = np.zeros((n, budget * 9, 768), np.float32)
    positions = np.full((n, budget * 9, 2), -1, np.int64)
    for i, (p, pos) in enumerate(rows):
        pixels[i, :len(p)] = p / 255.0
        positions[i, :len(p)] = pos
    return torch.from_numpy(pixels), torch.from_numpy(positions)


def sample_sounds(rng, n):
    """Beeps, and words of the training's voices: from the bank if it was made, else spoken by espeak-ng."""
    bank = sounds.Bank(BANK) if os.path.exists(BANK) else None

    def word():
        w = rng.choice(sounds.WORDS)
        if bank:
            return bank.clip(rng.randrange(bank.n_voices), w)
        voice = rng.choice(sounds.ACCENTS) + "+" + rng.choice(sounds.VARIANTS)
        return sounds.speak(w, voice, rng.choice(sounds.SPEEDS), rng.randint(20, 80))

    waves = []
    for i in range(n):
        x = word() if i % 2 else sounds.beeps(rng, rng.randint(1, 6))
        waves.append((0.9 * x / np.abs(x).max()).astype(np.float32))
    out = torch.zeros(n, max(map(len, waves)))
    for i, x in enumerate(waves):
        out[i, :len(x)] = torch.from_numpy(x)
    return demo.log_mel(out, torch.tensor([len(x) for x in waves]))


@torch.no_grad()
def remove_bounds(model):
    for module in model.modules():
        if type(module).__name__ == "Gemma4ClippableLinear":
            for name, sign in (("input_min", -1), ("input_max", 1), ("output_min", -1), ("output_max", 1)):
                getattr(module, name).fill_(sign * float("inf"))


@torch.no_grad()
def set_bounds(model, tokenizer, seed=3):
    rng = random.Random(seed)
    seen, hooks = {}, []

    def watch(module):
        def hook(_, inputs, output):
            new = torch.stack([inputs[0].min(), inputs[0].max(), output.min(), output.max()])
            old = seen.get(module, new)
            seen[module] = torch.stack([torch.minimum(old[0], new[0]), torch.maximum(old[1], new[1]), torch.minimum(old[2], new[2]),
                                        torch.maximum(old[3], new[3])])
        return hook

    for module in model.modules():
        if type(module).__name__ == "Gemma4ClippableLinear":
            hooks.append(module.linear.register_forward_hook(watch(module)))
    remove_bounds(model)
    core = model.model
    for budget in (70, 280):
        pixels, positions = sample_pictures(rng, 24, budget)
        core.vision_tower(pixel_values=pixels, pixel_position_ids=positions)
    core.audio_tower(*sample_sounds(rng, 48))
    for h in hooks:
        h.remove()
    for module, values in seen.items():
        for name, v in zip(("input_min", "input_max", "output_min", "output_max"), values):
            getattr(module, name).copy_(v * WIDEN)
