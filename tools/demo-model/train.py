"""Trains the demo model for a given number of seconds and saves 16-bit weights.

    python train.py --out FOLDER --seconds 430 [--resume FOLDER]

The learning rate follows the clock: a short rise, a plateau, then a straight line down to zero. Worker processes make the
data meanwhile. At the end the held-out items are answered greedily and the accuracy of each skill is printed.
"""

import argparse
import os
import time

import torch
from torch.utils.data import DataLoader

import checkpoint
import evaluate
import model as demo
import optim
from batches import Batches
from fast import Fast
from tokenizer import DemoTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))


def arguments():
    a = argparse.ArgumentParser()
    a.add_argument("--out", required=True)
    a.add_argument("--seconds", type=float, default=430)
    a.add_argument("--resume")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--tokens", type=int, default=32768, help="text tokens per batch")
    a.add_argument("--text-batches", type=int, default=1, help="text batches per step")
    a.add_argument("--pictures", type=int, default=128)
    a.add_argument("--sounds", type=int, default=128)
    a.add_argument("--workers", type=int, nargs=3, default=[3, 10, 1])
    a.add_argument("--lr", type=float, default=5e-3)
    a.add_argument("--plateau", type=float, default=0.4, help="share of the time before the rate falls")
    a.add_argument("--max-steps", type=int, default=10 ** 9)
    a.add_argument("--bank", default=os.path.join(HERE, "data/bank.npz"))
    a.add_argument("--eval-items", type=int, default=10 ** 9)
    a.add_argument("--skip", default="", help="kinds of data to leave out")
    return a.parse_args()


def to_device(batch, device):
    return {k: v.to(device, non_blocking=True) if torch.is_tensor(v) else v for k, v in batch.items()}


def main():
    args = arguments()
    begin = time.time()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    path = os.path.join(HERE, "tokenizer.json")
    tokenizer = DemoTokenizer(path)
    sizes = {"text": args.tokens, "image": args.pictures, "audio": args.sounds}
    kinds = [k for k in sizes if k not in args.skip.split(",")]
    feeds = {}
    for kind, n in zip(sizes, args.workers):
        if kind in kinds:
            data = Batches(kind, sizes[kind], args.seed, path, args.bank)
            feeds[kind] = iter(DataLoader(data, batch_size=None, num_workers=n, prefetch_factor=4 if n else None, pin_memory=device.type == "cuda"))
    demo.use_fused_norm()
    model = demo.build(tokenizer.ids, len(tokenizer.tokens), args.seed)
    if args.resume:
        checkpoint.load(model, args.resume)
    model.to(device).train()
    fast = Fast(model)
    matrices, tables, rest = optim.split(model)
    muon = optim.Muon(matrices)
    adam = torch.optim.AdamW([{"params": tables, "weight_decay": 0.0}, {"params": rest, "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.98),
                             fused=device.type == "cuda")
    plan = ["text"] * args.text_batches + ["image", "audio"]
    plan = [k for k in plan if k in kinds]
    weight = {"text": 1.0 / args.text_batches, "image": 1.0, "audio": 0.6}
    shown = {k: [0.0, 0, 0] for k in sizes}
    print(f"ready after {time.time() - begin:.0f} s on {device}", flush=True)
    start = time.time()
    step = tokens = waits = 0
    last_report = start
    while step < args.max_steps:
        progress = (time.time() - start) / args.seconds
        if progress >= 1:
            break
        rate = min(1.0, (step + 1) / 100, (1 - progress) / (1 - args.plateau))
        waited = time.time()
        batches = [to_device(next(feeds[k]), device) for k in plan]
        waited = time.time() - waited
        timed = step in (60, 61, 62, 150) and device.type == "cuda"
        for b in batches:
            if timed:
                torch.cuda.synchronize()
                mark = time.time()
            loss, n, right = fast.loss(b)
            (loss * (weight[b["kind"]] / n)).backward()
            s = shown[b["kind"]]
            s[0] = s[0] + loss.detach()
            s[1] += n
            s[2] = s[2] + right
            tokens += b["ids"].numel()
            if timed:
                torch.cuda.synchronize()
                print(f"{b['kind']} batch {tuple(b['ids'].shape)}: {1e3 * (time.time() - mark):.0f} ms", flush=True)
        torch.nn.utils.clip_grad_norm_(tables + rest, 1.0)
        muon.step(args.lr * rate)
        for g in adam.param_groups:
            g["lr"] = 0.6 * args.lr * rate
        adam.step()
        model.zero_grad(set_to_none=True)
        step += 1
        waits += waited
        if time.time() - last_report > 15 or step in (1, 20):
            line = " ".join(f"{k} {float(s[0]) / max(1, s[1]):.4f} ({100 * float(s[2]) / max(1, s[1]):.2f}%)" for k, s in shown.items() if s[1])
            print(f"{time.time() - start:6.0f} s step {step} {tokens / 1e6:.0f} M tokens, waited {waits:.1f} s: {line}", flush=True)
            shown = {k: [0.0, 0, 0] for k in sizes}
            last_report = time.time()
    if device.type == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2 ** 30:.1f} GiB", flush=True)
    del feeds
    checkpoint.save(model, args.out)
    print(f"saved after {time.time() - start:.0f} s, {step} steps", flush=True)
    model.eval()
    results = evaluate.run(model, tokenizer, os.path.join(HERE, "eval"), device, limit=args.eval_items)
    evaluate.report(results)


if __name__ == "__main__":
    main()
