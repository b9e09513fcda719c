"""Weights as 16-bit parts small enough to move around, and back."""

import glob
import os

import numpy as np
import torch

PART_BYTES = 15_000_000


def save(model, folder, prefix="weights"):
    parts, size = [{}], 0
    for name, p in model.named_parameters():
        a = p.detach().to(torch.float16).cpu().numpy()
        if size + a.nbytes > PART_BYTES:
            parts.append({})
            size = 0
        parts[-1][name] = a
        size += a.nbytes
    os.makedirs(folder, exist_ok=True)
    for i, part in enumerate(parts):
        np.savez(os.path.join(folder, f"{prefix}-{i}.npz"), **part)


def load(model, folder, prefix="weights"):
    own = dict(model.named_parameters())
    seen = set()
    for path in sorted(glob.glob(os.path.join(folder, f"{prefix}-*.npz"))):
        with np.load(path) as f:
            for name in f.files:
                with torch.no_grad():
                    own[name].copy_(torch.from_numpy(f[name].astype(np.float32)))
                seen.add(name)
    missing = set(own) - seen
    if missing:
        raise ValueError(f"{folder} lacks {len(missing)} tensors, for example {sorted(missing)[0]}")
