"""The demo model's tokenizer: Gemma 4's pipeline over a vocabulary of about four thousand tokens.

Byte-fallback BPE over characters, space written as U+2581, digits and punctuation always single tokens, the 24 markers
with the texts that Gemma 4 gives them. `python tokenizer.py OUT.json` trains it on the curriculum.
"""

import json
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import chat
import curriculum
import facts

CONTROL = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
MARKERS = ["<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", '<|"|>', "<|think|>",
           "<|channel>", "<channel|>", "<|turn>", "<turn|>", "<|image>", "<|audio>", "<|image|>", "<|audio|>", "<image|>", "<audio|>",
           "<|video|>"]
SPECIAL = CONTROL + MARKERS
SPACE = "\u2581"
RUNS = ["\n", "\n\n", "\n\n\n", "\n\n\n\n", "\t", SPACE, SPACE * 2, SPACE * 3, SPACE * 4]
RUN_MERGES = [("\n\n", "\n\n"), (SPACE * 2, SPACE * 2), ("\n\n", "\n"), (SPACE * 2, SPACE), ("\n", "\n"), (SPACE, SPACE)]
ASCII = [chr(c) for c in range(33, 127)]
TARGET_SIZE = 4096


def corpus(n, seed):
    """Rendered conversations without markers and without characters outside ASCII."""
    rng = random.Random(seed)
    for _ in range(n):
        messages, tools, thinking, _ = curriculum.conversation(rng)
        text = "".join(v for _, v in chat.render(messages, tools, thinking))
        for marker in SPECIAL:
            text = text.replace(marker, "\n")
        yield "".join(c for c in text if c == "\n" or 32 <= ord(c) < 127)
    listed = [*facts.GEMS, *facts.COLOURS, *facts.WORDS, *facts.NAMES, *facts.SIGNS, *facts.COMMANDS, *facts.DAYS, *facts.MONTHS,
              *facts.OTHER_COUNTRIES, *facts.CAPITALS, *facts.CAPITALS.values(), *facts.PETS, *facts.ANIMALS, *facts.ONES]
    for word in listed:
        for _ in range(60):
            yield f" {word} {word.upper()} {word} {word.capitalize()}\n{word}\n{word.capitalize()}"


def train(path, n=120000, seed=20):
    raw = Tokenizer(models.BPE())
    raw.normalizer = normalizers.Replace(" ", SPACE)
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(SPACE + "?[A-Za-z]+|\\n|."), "isolated")
    n_merges = TARGET_SIZE - len(SPECIAL) - 256 - len(RUNS) - len(ASCII)
    trainer = trainers.BpeTrainer(vocab_size=n_merges + len(ASCII) + 2, initial_alphabet=ASCII + [SPACE, "\n"], min_frequency=40,
                                  show_progress=False)
    raw.train_from_iterator(corpus(n, seed), trainer)
    learned = [tuple(m) for m in json.loads(raw.to_str())["model"]["merges"]]
    tokens = SPECIAL + [f"<0x{b:02X}>" for b in range(256)] + RUNS + ASCII
    tokens += [a + b for a, b in learned]
    assert len(set(tokens)) == len(tokens) <= TARGET_SIZE
    merges = RUN_MERGES + learned
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"tokens": tokens, "merges": [a + " " + b for a, b in merges]}, f, ensure_ascii=True, indent=0)
    return tokens


class DemoTokenizer:
    """Encodes and decodes; marker texts in `markers=True` text become their tokens."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            data = json.load(f)
        self.tokens, self.merges = data["tokens"], data["merges"]
        self.ids = {t: i for i, t in enumerate(self.tokens)}
        vocab = self.ids
        t = Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in self.merges], byte_fallback=True, unk_token="<unk>", fuse_unk=False))
        t.normalizer = normalizers.Replace(" ", SPACE)
        t.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
        t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in SPECIAL])
        self.hf = t

    def encode(self, text):
        return self.hf.encode(text, add_special_tokens=False).ids

    def decode(self, ids, specials=True):
        return self.hf.decode(list(ids), skip_special_tokens=not specials)

    def encode_segments(self, segments, n_image=None, n_audio=None):
        """ids and a 0/1 list that marks targets. n_image and n_audio: soft tokens of each media item in order."""
        ids, target = [], []
        n_image, n_audio = iter(n_image or ()), iter(n_audio or ())
        for kind, v in segments:
            if kind == "image":
                part = [self.ids["<|image>"]] + [self.ids["<|image|>"]] * next(n_image) + [self.ids["<image|>"]]
            elif kind == "audio":
                part = [self.ids["<|audio>"]] + [self.ids["<|audio|>"]] * next(n_audio) + [self.ids["<audio|>"]]
            else:
                part = self.encode(v)
            ids += part
            target += [1 if kind == "target" else 0] * len(part)
        return ids, target


if __name__ == "__main__":
    made = train(sys.argv[1] if len(sys.argv) > 1 else "tokenizer.json")
    print(len(made), "tokens")
