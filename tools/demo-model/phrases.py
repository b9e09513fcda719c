"""Questions as people type them: nested alternatives, polite words, made-up words and symbols.

A template such as "(what is|what's) [a] (plus|+) [b]" stands for all its readings; `say` draws one, `ask` also varies the
capital at the beginning and the mark at the end. Everything is a function of the random generator.
"""

import re


# ---- phrases: "(a|b (c|)) [slot]" ------------------------------------------------------------------------------

_parsed = {}


def _parse(text):
    """Text with nested alternatives as a tree: a list of strings and lists of alternatives."""
    pos = 0

    def sequence():
        nonlocal pos
        out, buf = [], []
        while pos < len(text) and text[pos] not in "|)":
            if text[pos] == "(":
                if buf:
                    out.append("".join(buf))
                    buf = []
                pos += 1
                options = [sequence()]
                while text[pos] == "|":
                    pos += 1
                    options.append(sequence())
                pos += 1
                out.append(options)
            else:
                buf.append(text[pos])
                pos += 1
        if buf:
            out.append("".join(buf))
        return out

    options = [sequence()]
    while pos < len(text) and text[pos] == "|":
        pos += 1
        options.append(sequence())
    return [options]


def _expand(rng, node):
    out = []
    for part in node:
        out.append(part if isinstance(part, str) else _expand(rng, part[int(rng.random() * len(part))]))
    return "".join(out)


def say(rng, template, **slots):
    tree = _parsed.get(template)
    if tree is None:
        tree = _parsed[template] = _parse(template)
    text = _expand(rng, tree)
    if slots:
        text = re.sub(r"\[(\w+)\]", lambda m: str(slots[m.group(1)]), text)
    return text


POLITE = ["please ", "can you tell me: ", "tell me, ", "quick question: ", "hey, ", "ok, ", "now ", "so, ", "I want to know: ",
          "carat, ", "well, ", "next: ", "question: ", "and ", "hello, ", "hi, "]


def ask(rng, template, end="?", **slots):
    """A question as people type it: with or without a capital, a mark at the end, a polite word."""
    text = say(rng, template, **slots)
    if rng.random() < 0.12:
        text = POLITE[int(rng.random() * len(POLITE))] + text
    if rng.random() < 0.8:
        text = text[:1].upper() + text[1:]
    r = rng.random()
    if r < 0.75:
        text += end
    elif r < 0.80:
        text += " please" + end
    elif r < 0.83:
        text += " " + end
    return text


def cap(text):
    return text[:1].upper() + text[1:]


def pick(rng, seq):
    return seq[int(rng.random() * len(seq))]


# ---- made-up words ---------------------------------------------------------------------------------------------

_ON = ["b", "br", "d", "dr", "f", "fl", "g", "gr", "h", "k", "kl", "l", "m", "n", "p", "pl", "r", "s", "st", "t", "tr", "v", "w", "z",
       "sh", "th", "qu", "j"]
_VO = ["a", "e", "i", "o", "u", "ai", "ee", "oo", "ou"]
_CO = ["", "n", "r", "l", "s", "t", "k", "m", "x", "nd", "rt", "st"]


def made_up(rng, n=None):
    n = n or rng.randint(1, 3)
    return "".join(pick(rng, _ON) + pick(rng, _VO) + pick(rng, _CO) for _ in range(n))


_SYMBOLS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&*+-/:;=?@_~^.,'\"(){}[]"


def random_text(rng):
    r = rng.random()
    if r < 0.5:
        return " ".join(made_up(rng) for _ in range(rng.randint(1, 4)))
    if r < 0.8:
        return "".join(pick(rng, _SYMBOLS) for _ in range(rng.randint(2, 10)))
    if r < 0.9:
        return "".join(chr(rng.choice([rng.randint(0xC0, 0x17F), rng.randint(0x391, 0x3C9), rng.randint(0x4E00, 0x9000),
                                       rng.randint(0x1F600, 0x1F64F)])) for _ in range(rng.randint(1, 5)))
    return " ".join(str(rng.randint(0, 999)) for _ in range(rng.randint(1, 5)))
