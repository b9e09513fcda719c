"""Trains the demo model for a given number of seconds and saves 16-bit weights.

    python train.py --out FOLDER --seconds 430 [--eager] [--resume FOLDER or FILE.gguf]

The learning rate follows the clock: a short rise, a plateau, then a straight line down to zero. Worker processes make the
data meanwhile. The weights are saved every minute, lest a run that is cut off be lost, and at the end, when the held-out items are
answered greedily and the accuracy of each skill is printed.
"""

import argparse
import os
import time

import torch
from torch.utils.data import DataLoader

import calibrate
import checkpoint
import evaluate
import export
import model as demo
from batches import Batches
from fast import Fast
from optim import Optimiser
from tokenizer import DemoTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = ("text", "image", "audio")
SAVE_SECONDS = 60


def arguments():
    a = argparse.ArgumentParser()
    a.add_argument("--out", required=True)
    a.add_argument("--seconds", type=float, default=430, help="from the start of the program to the last step")
    a.add_argument("--resume")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--tokens", type=int, default=40960, help="text tokens per batch")
    a.add_argument("--pictures", type=int, default=384, help="pictures per batch at a budget of 70")
    a.add_argument("--sounds", type=int, default=96)
    a.add_argument("--every", type=int, nargs=3, default=[2, 1, 8], help="steps between batches of text, pictures, sounds")
    a.add_argument("--workers", type=int, nargs=3, default=[3, 10, 1])
    a.add_argument("--rates", type=float, nargs=3, default=[1, 1, 1], help="shares of the rate for text and the towers of pictures and sounds")
    a.add_argument("--lr", type=float, default=4e-3)
    a.add_argument("--plateau", type=float, default=0.4, help="share of the time before the rate falls")
    a.add_argument("--warm-up", type=int, default=100, help="steps until the full rate")
    a.add_argument("--max-steps", type=int, default=10 ** 9)
    a.add_argument("--bank", default=os.path.join(HERE, "data/bank.npz"))
    a.add_argument("--eval-items", type=int, default=10 ** 9, help="held-out items of each skill to answer at the end")
    a.add_argument("--system", type=float, default=0.19, help="share of conversations under a system prompt")
    a.add_argument("--practice", type=float, default=0, help="share of conversations of the hardest kinds only")
    a.add_argument("--counting", type=float, default=0, help="share of pictures that are sure to be counts")
    a.add_argument("--budgets", type=float, nargs=3, default=[0.6, 0.15, 0.25], help="shares of budgets of 70, 140 and 280 soft tokens")
    a.add_argument("--eager", dest="compiled", action="store_false", help="without compiled pieces: starts at once, for runs of minutes")
    return a.parse_args()


def to_device(batch, device):
    return {k: v.to(device, non_blocking=True) if torch.is_tensor(v) else v for k, v in batch.items()}


def make_feeds(args, device, tokenizer_path):
    feeds = {}
    for kind, size, n in zip(KINDS, (args.tokens, args.pictures, args.sounds), args.workers):
        data = Batches(kind, size, args.seed, tokenizer_path, args.bank, tuple(zip((70, 140, 280), args.budgets)), system_share=args.system,
                       practice_share=args.practice, counting_share=args.counting)
        feeds[kind] = iter(DataLoader(data, batch_size=None, num_workers=n, prefetch_factor=3 if n else None, pin_memory=device.type == "cuda"))
    return feeds


class Log:
    """Losses and accuracies since the last line."""

    def __init__(self):
        self.sums = {k: [0.0, 0, 0] for k in KINDS}
        self.last = self.start = time.time()
        self.tokens = self.pictures = 0
        self.waited = 0.0

    def add(self, batch, loss, n, right):
        s = self.sums[batch["kind"]]
        s[0], s[1], s[2] = s[0] + loss.detach(), s[1] + n, s[2] + right
        self.tokens += batch["ids"].numel()
        self.pictures += batch["ids"].shape[0] if batch["kind"] == "image" else 0

    def line(self, step, force=False):
        now = time.time()
        if not force and now - self.last < 20:
            return
        text = " ".join(f"{k} {float(s[0]) / s[1]:.4f} ({100 * float(s[2]) / s[1]:.2f}%)" for k, s in self.sums.items() if s[1])
        print(f"{now - self.start:6.0f} s step {step} {self.tokens / 1e6:.0f} M tokens {self.pictures / 1e3:.0f} k pictures, waited {self.waited:.1f} s: {text}",
              flush=True)
        self.sums = {k: [0.0, 0, 0] for k in KINDS}
        self.last = now


def main():
    args = arguments()
    begin = time.time()
    torch._dynamo.config.disable = not args.compiled
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    path = os.path.join(HERE, "tokenizer.json")
    tokenizer = DemoTokenizer(path)
    feeds = make_feeds(args, device, path)
    if device.type == "cuda":
        # Batches come in ever new shapes, and asking the driver for memory took 0.3 s a batch. One large block, given back at once,
        # stays with PyTorch's allocator, which cuts everything else out of it.
        torch.empty(int(0.7 * torch.cuda.mem_get_info()[0]), dtype=torch.uint8, device=device)
        torch.cuda.reset_peak_memory_stats()
    demo.use_fused_norm()
    model = demo.build(tokenizer.ids, len(tokenizer.tokens), args.seed)
    if args.resume and args.resume.endswith(".gguf"):
        export.load_gguf(model, args.resume)
        calibrate.remove_bounds(model)
    elif args.resume:
        checkpoint.load(model, args.resume)
    model.to(device).train()
    fast = Fast(model)
    # A tower is updated only in steps that use it: Muon would go on at full speed without a gradient.
    named = list(model.named_parameters())
    parts = {"audio": Optimiser([x for x in named if "audio" in x[0]]), "image": Optimiser([x for x in named if "vision" in x[0]]),
             "text": Optimiser([x for x in named if "audio" not in x[0] and "vision" not in x[0]])}

    def learn(kind, weight=1.0):
        wait = time.time()
        batch = to_device(next(feeds[kind]), device)
        wait = time.time() - wait
        loss, n, right = fast.loss(batch)
        (loss * (weight / n)).backward()
        return batch, loss, n, right, wait

    if device.type == "cuda":
        # Compilation happens before the clock starts.
        for kind in KINDS + ("text", "image", "text", "image", "text", "audio", "image", "text", "text") * args.compiled:
            learn(kind)
        torch.cuda.synchronize()
        for part in parts.values():
            part.record()
    print(f"ready after {time.time() - begin:.0f} s on {device}", flush=True)
    log = Log()
    seconds = args.seconds - (log.start - begin)
    step = 0
    saved = time.time()
    while step < args.max_steps:
        progress = (time.time() - log.start) / seconds
        if progress >= 1:
            break
        rate = args.lr * min(1.0, (step + 1) / args.warm_up, (1 - progress) / (1 - args.plateau))
        plan = [k for k, every in zip(KINDS, args.every) if step % every == 0]
        timed = step in (40, 41, 48) and device.type == "cuda"
        mark = time.time()
        for kind in plan:
            batch, loss, n, right, wait = learn(kind, 0.6 if kind == "audio" else 1.0)
            log.add(batch, loss, n, right)
            log.waited += wait
            if timed:
                torch.cuda.synchronize()
                print(f"{kind} {tuple(batch['ids'].shape)}: {1e3 * (time.time() - mark):.0f} ms", flush=True)
                mark = time.time()
        for kind, share in zip(KINDS, args.rates):
            if kind == "text" or kind in plan:
                parts[kind].step(rate * share)
        if timed:
            torch.cuda.synchronize()
            print(f"update: {1e3 * (time.time() - mark):.0f} ms", flush=True)
        step += 1
        log.line(step)
        if time.time() - saved > SAVE_SECONDS:
            checkpoint.save(model, args.out)
            saved = time.time()
    log.line(step, True)
    if device.type == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2 ** 30:.1f} GiB", flush=True)
    feeds.clear()
    checkpoint.save(model, args.out)
    print(f"saved after {time.time() - log.start:.0f} s, {step} steps", flush=True)
    model.eval()
    evaluate.report(evaluate.run(model, tokenizer, os.path.join(HERE, "eval"), device, limit=args.eval_items))


if __name__ == "__main__":
    main()
