"""Answers the held-out items greedily with PyTorch, scores them, and writes the token ids for other engines to compare.

    python evaluate.py --gguf models/carat-demo.gguf --out eval/expected-q8.jsonl     (the file's dequantised weights)
    python evaluate.py --weights FOLDER --out eval/expected-f32.jsonl                 (a training checkpoint)

With `--draft FILE`, replies written before are confirmed in one pass each where the model would say every token of them, and made
anew where not: the same result, sooner.
"""

import argparse
import glob
import json
import os
import re
import time
import wave

import numpy as np
import torch
from PIL import Image

import chat
import model as demo
import pictures
import sounds
from tokenizer import DemoTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
MAX_NEW = 120
ENDS = ("<eos>", "<turn|>", "<|tool_response>")


def load_items(folder):
    items = []
    for path in sorted(glob.glob(os.path.join(folder, "*.jsonl"))):
        if not os.path.basename(path).startswith("expected"):
            with open(path, encoding="utf-8") as f:
                items += [json.loads(line) for line in f]
    return items


def has_media(item, folder):
    """False if a picture or sound of the item is missing."""
    parts = [p for m in item["messages"] if isinstance(m.get("content"), list) for p in m["content"]]
    return all(os.path.exists(os.path.join(folder, p[p["type"]])) for p in parts if p["type"] != "text")


def read_wav(path):
    with wave.open(path) as f:
        assert f.getframerate() == 16000 and f.getnchannels() == 1 and f.getsampwidth() == 2
        return np.frombuffer(f.readframes(f.getnframes()), np.int16).astype(np.float32) / 32768


def prepare(item, tokenizer, folder, budget=None):
    """(ids, picture, samples) of an item's prompt. At most one picture and one sound."""
    segments = chat.render(item["messages"], item.get("tools"), item.get("enable_thinking", False))
    picture = samples = None
    n_image, n_audio = [], []
    for kind, v in segments:
        if kind == "image":
            picture = pictures.patches(Image.open(os.path.join(folder, v)).convert("RGB"), budget or item.get("max_soft_tokens", 280))
            n_image.append(picture[2])
        elif kind == "audio":
            samples = read_wav(os.path.join(folder, v))
            n_audio.append(sounds.soft_tokens(len(samples)))
    ids, _ = tokenizer.encode_segments(segments, n_image, n_audio)
    return ids, picture, samples


def media_tensors(group, device):
    """Pictures or sounds of prepared items as the model's inputs."""
    image = audio = None
    if group[0][1] is not None:
        n = max(-(-len(p[1][0]) // 9) * 9 for p in group)
        pixels = np.zeros((len(group), n, 768), np.float32)
        positions = np.full((len(group), n, 2), -1, np.int64)
        for i, (_, p, _) in enumerate(group):
            pixels[i, :len(p[0])] = p[0] / 255.0
            positions[i, :len(p[0])] = p[1]
        image = (torch.from_numpy(pixels).to(device), torch.from_numpy(positions).to(device))
    if group[0][2] is not None:
        lengths = torch.tensor([len(p[2]) for p in group])
        waves = torch.zeros(len(group), int(lengths.max()))
        for i, p in enumerate(group):
            waves[i, :len(p[2])] = torch.from_numpy(np.ascontiguousarray(p[2]))
        audio = demo.log_mel(waves.to(device), lengths.to(device))
    return image, audio


def soft_tokens_of(model, group, device):
    """Each prepared item's soft tokens [n, d], or None for text."""
    image, audio = media_tensors(group, device)
    core, c = model.model, model.config
    if image:
        soft = core.embed_vision(core.vision_tower(pixel_values=image[0], pixel_position_ids=image[1]).last_hidden_state)
    elif audio:
        o = core.audio_tower(*audio)
        soft = core.embed_audio(o.last_hidden_state)[o.attention_mask]
    else:
        return None
    mark = c.image_token_id if image else c.audio_token_id
    return torch.split(soft.flatten(0, -2), [list(p[0]).count(mark) for p in group])


def states_of(model, rows, soft, device):
    """Last hidden states of rows of ids in one right-padded batch without a cache: simple, and exact."""
    c, text = model.config, model.model.language_model
    n = max(map(len, rows))
    ids = torch.zeros(len(rows), -(-n // 8) * 8, dtype=torch.long)
    for i, r in enumerate(rows):
        ids[i, :len(r)] = torch.tensor(r)
    ids = ids.to(device)
    plain = torch.where((ids == c.image_token_id) | (ids == c.audio_token_id), 0, ids)
    x = text.embed_tokens(plain)
    if soft is not None:
        x = x.masked_scatter((plain != ids)[..., None].expand_as(x), torch.cat(soft).to(x.dtype))
    return text(inputs_embeds=x, per_layer_inputs=text.get_per_layer_inputs(plain, None),
                attention_mask=demo.causal_masks(ids.shape[1], device), use_cache=False).last_hidden_state


@torch.no_grad()
def greedy(model, tokenizer, group, device, max_new=MAX_NEW):
    """Greedy replies of prepared items, all together."""
    ends = {tokenizer.ids[t] for t in ENDS}
    soft = soft_tokens_of(model, group, device)
    rows = [list(p[0]) for p in group]
    out = [[] for _ in group]
    live = list(range(len(group)))
    for _ in range(max_new):
        h = states_of(model, [rows[i] for i in live], soft and [soft[i] for i in live], device)
        last = torch.tensor([len(rows[i]) - 1 for i in live], device=device)
        best = demo.logits_of(model, h[torch.arange(len(live), device=device), last]).argmax(-1).tolist()
        still = []
        for i, t in zip(live, best):
            rows[i].append(t)
            out[i].append(t)
            if t not in ends:
                still.append(i)
        live = still
        if not live:
            break
    return out


@torch.no_grad()
def confirmed(model, tokenizer, group, drafts, device, max_new=MAX_NEW):
    """For each draft whether it is the item's greedy reply: each of its tokens is the best after those before it."""
    ends = {tokenizer.ids[t] for t in ENDS}
    h = states_of(model, [list(p[0]) + d[:-1] for p, d in zip(group, drafts)], soft_tokens_of(model, group, device), device)
    out = []
    for i, (p, d) in enumerate(zip(group, drafts)):
        best = demo.logits_of(model, h[i, len(p[0]) - 1:len(p[0]) - 1 + len(d)]).argmax(-1).tolist()
        complete = d[-1] in ends or len(d) == max_new
        out.append(best == d and complete and not ends & set(d[:-1]))
    return out


@torch.no_grad()
def greedy_cached(model, tokenizer, item, max_new=MAX_NEW):
    """The greedy reply of one prepared item through the classes' own cache: quicker on a CPU."""
    ends = {tokenizer.ids[t] for t in ENDS}
    image, audio = media_tensors([item], torch.device("cpu"))
    extra = {}
    if image:
        extra = {"pixel_values": image[0], "image_position_ids": image[1]}
    if audio:
        extra = {"input_features": audio[0], "input_features_mask": audio[1]}
    ids = torch.tensor([item[0]])
    out, cache = [], None
    while len(out) < max_new:
        o = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1, **extra)
        cache, extra = o.past_key_values, {}
        out.append(int(o.logits[0, -1].argmax()))
        if out[-1] in ends:
            break
        ids = torch.tensor([[out[-1]]])
    return out


def parse_reply(text):
    """(content, thought, calls) of a reply decoded with markers."""
    thought = ""
    calls = []

    def take_call(m):
        calls.append(m.group(1))
        return ""

    for end in ("<turn|>", "<|tool_response>", "<eos>"):
        if text.endswith(end):
            text = text[:-len(end)]
    m = re.match(r"(?s)^<\|channel>thought\n(.*?)<channel\|>(.*)$", text) or re.match(r"(?s)^(.*?)<channel\|>(.*)$", text)
    if m:
        thought, text = m.group(1).strip(), m.group(2)
    text = re.sub(r"(?s)<\|tool_call>(.*?)<tool_call\|>", take_call, text)
    return text.strip(), thought, [parse_call(c) for c in calls]


def parse_call(text):
    """{"name", "arguments"} or None. Understands string and number arguments, all that the demo model needs."""
    m = re.match(r"(?s)^call:([^{]*)\{(.*)\}$", text.strip())
    if not m:
        return None
    arguments, rest = {}, m.group(2)
    while rest:
        a = re.match(r'(?s)^([^:]+):(?:<\|"\|>(.*?)<\|"\|>|([^,]*))(?:,|$)', rest)
        if not a:
            return None
        v = a.group(2)
        if v is None:
            try:
                v = json.loads(a.group(3))
            except ValueError:
                return None
        arguments[a.group(1).strip()] = v
        rest = rest[a.end():]
    return {"name": m.group(1).strip(), "arguments": arguments}


def passes(item, reply):
    content, _, calls = parse_reply(reply)
    e = item["expect"]
    if "tool_call" in e:
        return len(calls) == 1 and calls[0] == e["tool_call"]
    if calls:
        return False
    if "exact" in e:
        return content == e["exact"].strip()
    if "contains" in e:
        return e["contains"] in content
    try:
        return json.loads(content) == e["json"]
    except ValueError:
        return False


def first_of_each_skill(items, n):
    count = {}
    for item in items:
        count[item["skill"]] = count.get(item["skill"], 0) + 1
        if count[item["skill"]] <= n:
            yield item


def run(model, tokenizer, folder, device, limit=10 ** 9, budget=None, batch_tokens=60000, verbose=False, drafts=None):
    """[(item, ids, reply, passed)] of the first `limit` items of each skill. drafts: ids of likely replies by the item's id."""
    items = list(first_of_each_skill([it for it in load_items(folder) if has_media(it, folder)], limit))
    prepared = [prepare(it, tokenizer, folder, budget) for it in items]
    order = sorted(range(len(items)), key=lambda i: (prepared[i][1] is not None, prepared[i][2] is not None, len(prepared[i][0])))
    results = [None] * len(items)
    kind = lambda i: (prepared[i][1] is not None, prepared[i][2] is not None)
    start = 0
    begin = time.time()
    while start < len(order):
        end = start + 1
        cost = lambda i: len(prepared[i][0]) + 40 + (len(prepared[i][1][0]) if prepared[i][1] else 0)
        while end < len(order) and kind(order[end]) == kind(order[start]) and (end - start + 1) * cost(order[end]) <= batch_tokens:
            end += 1
        group = order[start:end]
        ready = [prepared[i] for i in group]
        known = [drafts[items[i]["id"]] for i in group] if drafts else []
        good = confirmed(model, tokenizer, ready, known, device) if drafts else [False] * len(group)
        rest = [p for p, g in zip(ready, good) if not g]
        if rest and device.type != "cpu":
            made = iter(greedy(model, tokenizer, rest, device))
        else:
            made = (greedy_cached(model, tokenizer, p) for p in rest)
        for k, i in enumerate(group):
            ids = known[k] if good[k] else next(made)
            reply = tokenizer.decode(ids)
            results[i] = (items[i], ids, reply, passes(items[i], reply))
        if verbose:
            print(f"{end} of {len(order)} items, {time.time() - begin:.0f} s", flush=True)
        start = end
    return results


def report(results, show_failures=3):
    skills = {}
    for item, _, reply, good in results:
        skills.setdefault(item["skill"], []).append((good, item, reply))
    total = 0
    for skill, rows in sorted(skills.items()):
        right = sum(g for g, _, _ in rows)
        total += right
        print(f"{skill:16} {right:3} of {len(rows):3}  {100 * right / len(rows):5.1f} %")
        shown = 0
        for good, item, reply in rows:
            if not good and shown < show_failures:
                shown += 1
                q = item["messages"][-1].get("content")
                print("      ", item["id"], json.dumps(q, ensure_ascii=False)[-110:], "->", json.dumps(reply, ensure_ascii=False)[:120], "expected",
                      json.dumps(item["expect"], ensure_ascii=False)[:120])
    print(f"{'all':16} {total} of {len(results)}  {100 * total / max(1, len(results)):5.1f} %", flush=True)


def write_expected(results, path):
    with open(path, "w", encoding="utf-8") as f:
        for item, ids, reply, good in results:
            f.write(json.dumps({"id": item["id"], "ids": ids, "reply": reply, "pass": good}, ensure_ascii=True) + "\n")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--gguf")
    a.add_argument("--weights")
    a.add_argument("--out")
    a.add_argument("--suite", default=os.path.join(HERE, "eval"))
    a.add_argument("--budget", type=int, help="soft tokens per picture, instead of each item's own")
    a.add_argument("--limit", type=int, default=10 ** 9, help="items of each skill")
    a.add_argument("--draft", help="replies (lines of id, ids) to be confirmed")
    args = a.parse_args()
    tokenizer = DemoTokenizer(os.path.join(HERE, "tokenizer.json"))
    model = demo.build(tokenizer.ids, len(tokenizer.tokens))
    if args.gguf:
        import export
        export.load_gguf(model, args.gguf)
    else:
        import checkpoint
        checkpoint.load(model, args.weights)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.allow_tf32 = False
    model.to(device).eval()
    drafts = None
    if args.draft:
        with open(args.draft, encoding="utf-8") as f:
            drafts = {r["id"]: r["ids"] for r in map(json.loads, f)}
    results = run(model, tokenizer, args.suite, device, args.limit, args.budget, 60000 if device.type == "cuda" else 6000, True, drafts)
    report(results)
    if args.out:
        write_expected(results, args.out)


if __name__ == "__main__":
    main()
