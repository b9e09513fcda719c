"""Muon for the matrices inside the model, Adam for everything else, as one step that a CUDA graph can hold.

Equal shapes are updated together. Gradients live in fixed buffers, which the step clears after use.
"""

import torch


def orthogonal(g, steps=5):
    """Nearest semi-orthogonal matrices of a stack [n, r, c], by a quintic Newton-Schulz iteration."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16() if g.is_cuda else g
    flip = x.shape[1] > x.shape[2]
    if flip:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        y = x @ x.mT
        x = a * x + (b * y + c * y @ y) @ x
    return (x.mT if flip else x).float()


class Optimiser:
    """named: list of (name, parameter). Set the rate, then call step()."""

    def __init__(self, named, weight_decay=0.05, momentum=0.95, betas=(0.9, 0.98), adam_share=0.6):
        self.params = [p for _, p in named]
        device = self.params[0].device
        shapes = {}
        self.rest = []
        for name, p in named:
            if p.ndim == 2 and "embed_tokens" not in name:
                shapes.setdefault(tuple(p.shape), []).append(p)
            else:
                self.rest.append(p)
        self.groups = [(ps, torch.zeros((len(ps), *shape), device=device)) for shape, ps in shapes.items()]
        self.m = [torch.zeros_like(p) for p in self.rest]
        self.v = [torch.zeros_like(p) for p in self.rest]
        self.rate = torch.zeros((), device=device)
        self.t = torch.zeros((), device=device)
        self.weight_decay, self.momentum, self.betas, self.adam_share = weight_decay, momentum, betas, adam_share
        for p in self.params:
            p.grad = torch.zeros_like(p)
        self.graph = None

    @torch.no_grad()
    def update(self):
        for params, m in self.groups:
            g = torch.stack([p.grad for p in params])
            m.mul_(self.momentum).add_(g)
            u = orthogonal(g.add(m, alpha=self.momentum)) * (self.rate * (-0.2 * max(g.shape[1:]) ** 0.5))
            torch._foreach_mul_(params, 1 - self.rate * self.weight_decay)
            torch._foreach_add_(params, list(u.unbind(0)))
        grads = [p.grad for p in self.rest]
        norm = torch.stack(torch._foreach_norm(grads)).norm()
        torch._foreach_mul_(grads, torch.clamp(1.0 / (norm + 1e-6), max=1.0))
        b1, b2 = self.betas
        self.t.add_(1)
        torch._foreach_mul_(self.m, b1)
        torch._foreach_add_(self.m, grads, alpha=1 - b1)
        torch._foreach_mul_(self.v, b2)
        torch._foreach_addcmul_(self.v, grads, grads, 1 - b2)
        low = torch._foreach_sqrt(self.v)
        torch._foreach_div_(low, torch.sqrt(1 - b2 ** self.t))
        torch._foreach_add_(low, 1e-8)
        change = torch._foreach_div(self.m, low)
        torch._foreach_mul_(change, -self.adam_share * self.rate / (1 - b1 ** self.t))
        torch._foreach_add_(self.rest, change)
        torch._foreach_zero_([p.grad for p in self.params])

    def record(self):
        """Puts the update into a CUDA graph; without one, step() runs it directly."""
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    self.update()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self.update()
            self.graph = graph
        except RuntimeError as e:
            print("the update runs without a graph:", str(e).splitlines()[0], flush=True)
        self.reset()

    @torch.no_grad()
    def reset(self):
        for x in [m for _, m in self.groups] + self.m + self.v + [self.t] + [p.grad for p in self.params]:
            x.zero_()

    def step(self, rate):
        self.rate.fill_(rate)
        if self.graph:
            self.graph.replay()
        else:
            self.update()
