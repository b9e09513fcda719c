"""Endless training batches, made by worker processes while the model trains.

Every worker draws from its own seeded generator. A batch is a dictionary of tensors; `kind` says what it holds.
"""

import random

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

import chat
import curriculum
import pictures
import sounds
from model import CONTEXT
from tokenizer import DemoTokenizer


def padded(rows, multiple=8):
    n = max(len(r) for r in rows)
    n = -(-n // multiple) * multiple
    out = np.zeros((len(rows), n), np.int64)
    for i, r in enumerate(rows):
        out[i, :len(r)] = r
    return out


def with_targets(kind, rows):
    """Ids, the flat positions whose next token is a target, and those tokens."""
    ids = padded([r[0] for r in rows])
    target = padded([r[1] for r in rows])
    at = np.flatnonzero(np.pad(target[:, 1:], ((0, 0), (0, 1))).reshape(-1))
    gold = np.pad(ids[:, 1:], ((0, 0), (0, 1))).reshape(-1)[at]
    return {"kind": kind, "ids": torch.from_numpy(ids), "target_at": torch.from_numpy(at), "gold": torch.from_numpy(gold)}


class Batches(IterableDataset):
    """kind: "text", "image" or "audio"; size: tokens, pictures at a budget of 70, or sounds in a batch."""

    def __init__(self, kind, size, seed, tokenizer_path, bank_path=None, budgets=((70, 0.6), (140, 0.15), (280, 0.25)), long_share=0.03,
                 system_share=0.19, practice_share=0, counting_share=0):
        self.kind, self.size, self.seed = kind, size, seed
        self.tokenizer_path, self.bank_path, self.budgets, self.long_share = tokenizer_path, bank_path, budgets, long_share
        self.system_share, self.practice_share, self.counting_share = system_share, practice_share, counting_share

    def __iter__(self):
        info = get_worker_info()
        rng = random.Random(self.seed * 1000 + (info.id if info else 0))
        torch.set_num_threads(1)
        tokenizer = DemoTokenizer(self.tokenizer_path)
        if self.kind == "text":
            yield from self.text(rng, tokenizer)
        elif self.kind == "image":
            while True:
                yield self.images(rng, tokenizer)
        else:
            bank = sounds.Bank(self.bank_path)
            while True:
                yield self.sounds(rng, tokenizer, bank)

    def text(self, rng, tokenizer):
        while True:
            rows = []
            for _ in range(2048):
                if self.practice_share and rng.random() < self.practice_share:
                    made = curriculum.practice(rng)
                elif rng.random() < self.long_share:
                    made = curriculum.long_conversation(rng, rng.choice([8, 12, 20, 30, 40]))
                else:
                    made = curriculum.conversation(rng, system_share=self.system_share)
                messages, tools, thinking, learn = made
                ids, target = tokenizer.encode_segments(chat.render(messages, tools, thinking, False, learn=set(learn)))
                rows.append((ids[:CONTEXT], target[:CONTEXT]))
            rows.sort(key=lambda r: len(r[0]))
            groups, group = [], []
            for r in rows:
                if group and (len(group) + 1) * len(r[0]) > self.size:
                    groups.append(group)
                    group = []
                group.append(r)
            if len(group) > 1:   # a batch of one would be compiled anew
                groups.append(group)
            rng.shuffle(groups)
            for g in groups:
                yield with_targets("text", g)

    @staticmethod
    def media_row(rng, tokenizer, qa, kind, soft):
        messages = pictures.messages_for(qa, None, kind, rng)
        learn = {i for i, m in enumerate(messages) if m["role"] == "assistant"}
        return tokenizer.encode_segments(chat.render(messages, None, False, False, learn=learn), [soft], [soft])

    def images(self, rng, tokenizer):
        budget = rng.choices([b for b, _ in self.budgets], [w for _, w in self.budgets])[0]
        size = pictures.canvas_size(rng)
        height, width = pictures.target_size(size[1], size[0], budget)
        soft = height * width // 48 ** 2
        rows, pixels = [], []
        for _ in range(max(1, self.size * 70 // budget)):
            if self.counting_share and rng.random() < self.counting_share:
                image, qa = pictures.scene(rng, "count", size, questions=6)
            else:
                image, qa = pictures.scene(rng, size=size)
            pixels.append(np.asarray(image))
            rows.append(self.media_row(rng, tokenizer, qa, "image", soft))
        batch = with_targets("image", rows)
        batch["pictures"] = torch.from_numpy(np.stack(pixels))
        batch["height"], batch["width"], batch["budget"] = height, width, budget
        return batch

    def sounds(self, rng, tokenizer, bank):
        rows, waves = [], []
        for _ in range(self.size):
            x, q, a = sounds.scene(rng, bank)
            rows.append(self.media_row(rng, tokenizer, [(q, a)], "audio", sounds.soft_tokens(len(x))))
            waves.append(x)
        length = -(-max(map(len, waves)) // 4000) * 4000
        out = np.zeros((self.size, length), np.float32)
        for i, x in enumerate(waves):
            out[i, :len(x)] = x
        batch = with_targets("audio", rows)
        batch["waves"], batch["lengths"] = torch.from_numpy(out), torch.tensor([len(x) for x in waves])
        return batch
