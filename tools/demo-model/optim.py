"""Muon for the matrices inside the model, Adam for everything else; equal shapes are updated together."""

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


class Muon:
    def __init__(self, params, weight_decay=0.05, momentum=0.95):
        groups = {}
        for p in params:
            groups.setdefault(tuple(p.shape), []).append(p)
        self.groups = [(ps, torch.zeros((len(ps), *shape), device=ps[0].device)) for shape, ps in groups.items()]
        self.weight_decay, self.momentum = weight_decay, momentum

    @torch.no_grad()
    def step(self, lr):
        for params, m in self.groups:
            g = torch.stack([p.grad if p.grad is not None else torch.zeros_like(p) for p in params])
            m.mul_(self.momentum).add_(g)
            u = orthogonal(g.add(m, alpha=self.momentum)) * (0.2 * max(g.shape[1:]) ** 0.5)
            torch._foreach_mul_(params, 1 - lr * self.weight_decay)
            torch._foreach_add_(params, list(u.unbind(0)), alpha=-lr)


def split(model):
    """(matrices for Muon, tables without decay, other parameters)"""
    matrices, tables, rest = [], [], []
    for name, p in model.named_parameters():
        if "embed_tokens" in name or "position_embedding_table" in name:
            tables.append(p)
        elif p.ndim == 2:
            matrices.append(p)
        else:
            rest.append(p)
    return matrices, tables, rest
