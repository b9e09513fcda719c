"""Writes the held-out items into eval/: one JSON-lines file per skill, pictures and sounds beside them.

    python make_eval.py                                                           (the published items)
    python make_eval.py FOLDER --seed WORD [--items N] [--skills NAME NAME ...]   (others, none of them published)

Text items come from the twentieth of questions that training never uses. Pictures come from a seed of their own. Sounds
are spoken by voices and at speeds that training never uses.
"""

import argparse
import json
import os
import random
import wave

import numpy as np

import curriculum
import evaluate
import pictures
import skills
import sounds

HERE = os.path.dirname(os.path.abspath(__file__))
PER_SKILL = 50
PLAIN_STYLES = ("persona", "pirate", "start", "end", "name", "json", "lower", "twice", "fixed")
REWRITING_STYLES = ("capitals", "short")   # every word of the answer changes, or the answer must come without its sentence
LARGEST_PICTURE_BYTES = 40000


class Suite:
    """Where the items go, which are wanted, and the seed they are made from."""

    def __init__(self, folder, seed="", items=None, only=None):
        self.folder, self.seed, self.items, self.only = folder, seed, items, only
        # Other items than the published ones leave those out. (Pictures and sounds are never the same from another seed.)
        self.published = {question_of(i) for i in evaluate.load_items(os.path.join(HERE, "eval"))} if seed else set()
        os.makedirs(os.path.join(folder, "media"), exist_ok=True)

    def wants(self, skill):
        return not self.only or skill in self.only

    def random(self, name):
        return random.Random(f"eval {name} {self.seed}".rstrip())

    def unique(self, make):
        """As many different items as wanted, or as many as 20 000 attempts give: some skills have few questions that are held out."""
        seen, out = set(self.published), []
        for _ in range(20000):
            if len(out) == (self.items or PER_SKILL):
                break
            item = make()
            key = question_of(item)
            if key not in seen:
                seen.add(key)
                out.append(item)
        return out

    def write(self, skill, items):
        with open(os.path.join(self.folder, skill + ".jsonl"), "w", encoding="utf-8") as f:
            for i, item in enumerate(items):
                f.write(json.dumps({"id": f"{skill}-{i:03d}", "skill": skill, **item}, ensure_ascii=True) + "\n")


def question_of(item):
    return json.dumps(item["messages"])


def expectation(skill, answer):
    return {"json": json.loads(answer)} if skill == "json" else {"exact": answer}


def text_items(suite):
    for skill in filter(suite.wants, skills.BASE):
        rng = suite.random(skill)

        def single():
            t = skills.base_turn(rng, True, skill)
            return {"messages": [curriculum.user(t.user)], "expect": expectation(skill, t.answer)}

        suite.write(skill, suite.unique(single))

    def system(rng, kinds):
        while True:
            kind, s, t = curriculum.system_item(rng, True)
            if kind in kinds:
                break
        expect = {"json": json.loads(t.answer)} if kind == "json" else {"exact": t.answer}
        return {"messages": [{"role": "system", "content": s}, curriculum.user(t.user)], "expect": expect}

    def multi(rng):
        m = curriculum.multi_turn(rng, True)
        return {"messages": m[:-1], "expect": {"exact": m[-1]["content"]}}

    def thinking(rng):
        t = curriculum.thinking_turn(rng, True)
        expect = {"json": json.loads(t.answer)} if t.skill == "json" else {"exact": t.answer}
        return {"messages": [curriculum.user(t.user)], "enable_thinking": True, "expect": expect}

    def tool_call(rng):
        while True:
            m, tools, start = curriculum.tool_item(rng, True)
            first = m[start + 1]
            think = {"enable_thinking": True} if rng.random() < 0.2 else {}
            if "tool_calls" in first:
                f = first["tool_calls"][0]["function"]
                return {"messages": m[:start + 1], "tools": tools, **think, "expect": {"tool_call": {"name": f["name"], "arguments": f["arguments"]}}}
            if rng.random() < 0.3:
                return {"messages": m[:start + 1], "tools": tools, **think, "expect": {"exact": first["content"]}}

    def tool_answer(rng):
        while True:
            m, tools, start = curriculum.tool_item(rng, True)
            if "tool_calls" in m[start + 1]:
                clean = curriculum.with_thoughts(m, False)
                return {"messages": clean[:-1], "tools": tools, "expect": {"exact": clean[-1]["content"]}}

    composed = {"system": lambda rng: system(rng, PLAIN_STYLES), "system-rewrite": lambda rng: system(rng, REWRITING_STYLES), "multi-turn": multi,
                "thinking": thinking, "tool-call": tool_call, "tool-answer": tool_answer}
    for skill in filter(suite.wants, composed):
        rng = suite.random(skill)
        suite.write(skill, suite.unique(lambda: composed[skill](rng)))


def picture_items(suite):
    pictures.INVENTED = 0
    for scene, n in (("shapes", 60), ("count", 40), ("number", 40), ("word", 40), ("plain", 10)):
        if not suite.wants("image-" + scene):
            continue
        rng = suite.random("picture " + scene)
        items = []
        for i in range(suite.items or n):
            name = f"media/{scene}-{i:03d}.png"
            path = os.path.join(suite.folder, name)
            while True:
                image, qa = pictures.scene(rng, scene)
                image.save(path, optimize=True)
                if os.path.getsize(path) <= LARGEST_PICTURE_BYTES:
                    break
            q, a = qa[0]
            items.append({"max_soft_tokens": 280 if i % 3 == 2 else 70, "messages": pictures.messages_for([(q, a)], name, "image")[:1],
                          "expect": {"exact": a}})
        suite.write("image-" + scene, items)


def write_wav(path, x):
    with wave.open(path, "wb") as f:
        f.setnchannels(1)
        f.setsampwidth(2)
        f.setframerate(16000)
        f.writeframes((np.clip(x, -1, 1) * 32767).astype("<i2").tobytes())


def sound_items(suite):
    rng = suite.random("sounds")
    want = {"sound-word": 40, "sound-digits": 20, "sound-beeps": 15, "sound-silence": 5}
    want = {skill: suite.items or n for skill, n in want.items() if suite.wants(skill)}
    rows = {skill: [] for skill in want}
    while any(len(rows[k]) < want[k] for k in rows):
        skill = rng.choice([k for k in rows if len(rows[k]) < want[k]])
        if skill == "sound-beeps":
            x, q, a = sounds.beep_scene(rng)
        elif skill == "sound-silence":
            x, q, a = sounds.silence_scene(rng)
        else:
            if rng.random() < 0.5:
                voice = rng.choice(sounds.ACCENTS) + "+" + rng.choice(sounds.HELD_OUT_VARIANTS)
            else:
                voice = rng.choice(sounds.HELD_OUT_ACCENTS) + "+" + rng.choice(sounds.HELD_OUT_VARIANTS + ["m1", "f2", "max"])
            speed, pitch = rng.choice(sounds.HELD_OUT_SPEEDS), rng.randint(25, 75)
            x, q, a = sounds.speech_scene(rng, lambda w: sounds.speak(w, voice, speed, pitch))
            words = a.count(" ") - 1
            if (skill == "sound-word") == ("number is" in a or words > 1):
                continue
            x = 0.4 * x / np.abs(x).max()
        x = np.concatenate([sounds.quiet(rng.uniform(0.05, 0.3)), x, sounds.quiet(rng.uniform(0.1, 0.3))])
        name = f"media/{skill}-{len(rows[skill]):03d}.wav"
        write_wav(os.path.join(suite.folder, name), x)
        rows[skill].append({"messages": pictures.messages_for([(q, a)], name, "audio")[:1], "expect": {"exact": a}})
    for skill, items in rows.items():
        suite.write(skill, items)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("folder", nargs="?", default=os.path.join(HERE, "eval"))
    a.add_argument("--seed", default="", help="a word: items that are not among the published ones")
    a.add_argument("--items", type=int, help="items of each skill, instead of the published numbers")
    a.add_argument("--skills", nargs="+", help="these only")
    args = a.parse_args()
    suite = Suite(args.folder, args.seed, args.items, args.skills)
    text_items(suite)
    picture_items(suite)
    sound_items(suite)


if __name__ == "__main__":
    main()
