"""The training forward pass: the same mathematics as the Gemma 4 classes, on their parameters, in a few compiled pieces.

Between attention calls everything is element-wise or a small matrix product; compiled together it moves a fraction of the
memory that single operations move. Residual streams and norms are f32, matrix products bf16 on a GPU. Differences to the
classes' own forward: pictures of one batch have one size, so the tower needs no mask; clipping bounds (infinite during training) and layer scalars (1) are left out.
`python fast.py` compares it with the classes.
"""

import torch
import torch.nn.functional as F

import model as demo

torch._dynamo.config.recompile_limit = 64
HALF = torch.bfloat16 if torch.cuda.is_available() else torch.float32
EPS = 1e-6


def rms(x, w=None):
    x = x.float()
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)
    return y if w is None else y * w


def linear(x, w):
    return F.linear(x.to(HALF), w.to(HALF))


def rope(x, cos, sin):
    """x [b, s, h, e], cos and sin [s, e]"""
    n = x.shape[-1] // 2
    turned = torch.cat((-x[..., n:], x[..., :n]), -1)
    return x * cos[:, None] + turned * sin[:, None]


def heads(y, norm, n):
    y = y.unflatten(-1, (n, -1))
    return rms(y, norm)


@torch.compile(dynamic=True)
def text_query(x, norm, wq, qn, cos, sin):
    return rope(heads(linear(rms(x, norm), wq), qn, 4), cos, sin).to(HALF).transpose(1, 2)


@torch.compile(dynamic=True)
def text_qkv(x, norm, wq, qn, wk, kn, wv, cos, sin):
    a = rms(x, norm)
    q = rope(heads(linear(a, wq), qn, 4), cos, sin).to(HALF).transpose(1, 2)
    k = rope(heads(linear(a, wk), kn, 1), cos, sin).to(HALF).transpose(1, 2)
    v = heads(linear(a, wv), None, 1).to(HALF).transpose(1, 2)
    return q, k, v


@torch.compile(dynamic=True)
def text_rest(x, o, ple, wo, post, pre, wg, wu, wd, after, w_gate, w_proj, ple_norm):
    x = x + rms(linear(o.transpose(1, 2).flatten(-2), wo), post)
    m = rms(x, pre)
    f = linear(F.gelu(linear(m, wg), approximate="tanh") * linear(m, wu), wd)
    x = x + rms(f, after)
    g = F.gelu(linear(x, w_gate), approximate="tanh") * ple
    return x + rms(linear(g, w_proj), ple_norm)


@torch.compile(dynamic=True)
def per_layer_inputs(x, token, w, norm, n_layers: int):
    p = (linear(x, w).float() * x.shape[-1] ** -0.5).unflatten(-1, (n_layers, -1))
    return (rms(p, norm) + token.unflatten(-1, (n_layers, -1))) * 2 ** -0.5


@torch.compile(dynamic=True)
def vision_qkv(x, norm, wq, qn, wk, kn, wv, cos, sin):
    """cos and sin [p, 2, e / 2]: the first half of a head turns with the column, the second with the row."""
    a = rms(x, norm)

    def turn(y):
        y = y.unflatten(-1, (2, -1))
        n = y.shape[-1] // 2
        turned = torch.cat((-y[..., n:], y[..., :n]), -1)
        return (y * cos[:, None] + turned * sin[:, None]).flatten(-2).to(HALF).transpose(1, 2)

    return turn(heads(linear(a, wq), qn, 3)), turn(heads(linear(a, wk), kn, 3)), heads(linear(a, wv), None, 3).to(HALF).transpose(1, 2)


@torch.compile(dynamic=True)
def vision_rest(x, o, wo, post, pre, wg, wu, wd, after):
    x = x + rms(linear(o.transpose(1, 2).flatten(-2), wo), post)
    m = rms(x, pre)
    f = linear(F.gelu(linear(m, wg), approximate="tanh") * linear(m, wu), wd)
    return x + rms(f, after)


@torch.compile(dynamic=True)
def loss_of(h, w, gold):
    logits = 30.0 * torch.tanh(linear(h, w).float() / 30.0)
    return F.cross_entropy(logits, gold, reduction="sum"), (logits.argmax(-1) == gold).sum()


class Fast:
    """Forward passes over a Gemma4ForConditionalGeneration."""

    def __init__(self, model):
        self.model = model
        self.text = model.model.language_model
        self.kinds = model.config.text_config.layer_types
        device = next(model.parameters()).device
        x = torch.zeros(1, 1, 1, device=device)
        where = torch.arange(demo.CONTEXT, device=device)[None]
        self.tables = {k: tuple(t[0].contiguous() for t in self.text.rotary_emb(x, where, k)) for k in set(self.kinds)}

    def text_states(self, x, token):
        """x [b, s, d] layer-0 input, token [b, s, L * P] scaled rows of the per-layer table -> states after the last norm."""
        t = self.text
        ple = per_layer_inputs(x, token, t.per_layer_model_projection.weight, t.per_layer_projection_norm.weight, len(self.kinds))
        s = x.shape[1]
        masks = demo.causal_masks(s, x.device)
        shared = {}
        for i, layer in enumerate(t.layers):
            a, kind = layer.self_attn, self.kinds[i]
            cos, sin = (c[:s] for c in self.tables[kind])
            if a.is_kv_shared_layer:
                q = text_query(x, layer.input_layernorm.weight, a.q_proj.weight, a.q_norm.weight, cos, sin)
                k, v = shared[kind]
            else:
                q, k, v = text_qkv(x, layer.input_layernorm.weight, a.q_proj.weight, a.q_norm.weight, a.k_proj.weight, a.k_norm.weight,
                                   a.v_proj.weight, cos, sin)
                k, v = k.expand(-1, 4, -1, -1), v.expand(-1, 4, -1, -1)
                shared[kind] = k, v
            mask = masks[kind]
            o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=1.0)
            m = layer.mlp
            x = text_rest(x, o, ple[:, :, i], a.o_proj.weight, layer.post_attention_layernorm.weight, layer.pre_feedforward_layernorm.weight,
                          m.gate_proj.weight, m.up_proj.weight, m.down_proj.weight, layer.post_feedforward_layernorm.weight,
                          layer.per_layer_input_gate.weight, layer.per_layer_projection.weight, layer.post_per_layer_input_norm.weight)
        return rms(x, t.norm.weight)

    def soft_pictures(self, pictures, height, width):
        """pictures [b, h, w, 3] bytes, all stretched to height x width -> soft tokens [b, n, d]"""
        x = pictures.permute(0, 3, 1, 2).float()
        x = F.interpolate(x, size=(height, width), mode="bicubic", antialias=True).round().clamp(0, 255)
        rows, columns = height // 16, width // 16
        pixels = x.reshape(-1, 3, rows, 16, columns, 16).permute(0, 2, 4, 3, 5, 1).reshape(-1, rows * columns, 768)
        tower, embed = self.model.model.vision_tower, self.model.model.embed_vision
        b = pixels.shape[0]
        e = tower.patch_embedder
        table = e.position_embedding_table
        position = (table[0, :columns][None] + table[1, :rows][:, None]).reshape(1, rows * columns, -1)
        x = linear(pixels * (2 / 255) - 1, e.input_proj.weight).float() + position
        inv = tower.encoder.rotary_emb.inv_freq.float()
        grid = torch.stack(torch.meshgrid(torch.arange(columns, device=x.device), torch.arange(rows, device=x.device), indexing="xy"), -1).reshape(-1, 2)
        angle = grid[..., None].float() * inv
        angle = torch.cat((angle, angle), -1)
        cos, sin = angle.cos(), angle.sin()
        for layer in tower.encoder.layers:
            a, m = layer.self_attn, layer.mlp
            q, k, v = vision_qkv(x, layer.input_layernorm.weight, a.q_proj.linear.weight, a.q_norm.weight, a.k_proj.linear.weight,
                                 a.k_norm.weight, a.v_proj.linear.weight, cos, sin)
            o = F.scaled_dot_product_attention(q, k, v, scale=1.0)
            x = vision_rest(x, o, a.o_proj.linear.weight, layer.post_attention_layernorm.weight, layer.pre_feedforward_layernorm.weight,
                            m.gate_proj.linear.weight, m.up_proj.linear.weight, m.down_proj.linear.weight, layer.post_feedforward_layernorm.weight)
        x = x.reshape(b, rows // 3, 3, columns // 3, 3, -1).mean((2, 4)).flatten(1, 2) * x.shape[-1] ** 0.5
        return linear(rms(x), embed.embedding_projection.weight).float()

    def embedded(self, ids):
        return self.text.embed_tokens(ids), self.text.embed_tokens_per_layer(ids)

    def loss(self, batch):
        """(sum of losses, targets, right ones) of a batch on the device."""
        ids = batch["ids"]
        c = self.model.config
        if batch["kind"] == "text":
            x, token = self.embedded(ids)
        else:
            if batch["kind"] == "image":
                soft, mark = self.soft_pictures(batch["pictures"], batch["height"], batch["width"]), c.image_token_id
            else:
                core, mark = self.model.model, c.audio_token_id
                soft = core.embed_audio(core.audio_tower(*demo.log_mel(batch["waves"], batch["lengths"])).last_hidden_state)
            media = ids == mark
            x, token = self.embedded(torch.where(media, 0, ids))
            where = (torch.cumsum(media, 1) - 1).clamp(0, soft.shape[1] - 1)
            x = torch.where(media[..., None], soft.gather(1, where[..., None].expand(-1, -1, soft.shape[-1])), x)
        h = self.text_states(x, token)
        picked = h.reshape(-1, h.shape[-1]).index_select(0, batch["target_at"])
        loss, right = loss_of(picked, self.model.lm_head.weight, batch["gold"])
        return loss, batch["gold"].numel(), right


def check():
    """Prints the difference to the classes' own forward for one batch of each kind."""
    import os
    import numpy as np
    from PIL import Image
    from batches import Batches
    from pictures import patches
    from tokenizer import DemoTokenizer
    here = os.path.dirname(os.path.abspath(__file__))
    tokenizer = DemoTokenizer(os.path.join(here, "tokenizer.json"))
    model = demo.build(tokenizer.ids, len(tokenizer.tokens))
    fast = Fast(model)
    for kind, size in (("text", 2000), ("image", 2), ("audio", 2)):
        source = Batches(kind, size, 5, os.path.join(here, "tokenizer.json"), os.path.join(here, "data/bank.npz"))
        for i, b in zip(range(2), source):
            loss, n, _ = fast.loss(b)
            image = audio = None
            if kind == "image":
                made = [patches(Image.fromarray(x.numpy()), b["budget"]) for x in b["pictures"]]
                image = torch.from_numpy(np.stack([m[0] for m in made])) / 255, torch.from_numpy(np.stack([m[1] for m in made])).long()
            if kind == "audio":
                audio = demo.log_mel(b["waves"], b["lengths"])
            h = demo.hidden_states(model, b["ids"], image, audio)
            logits = demo.logits_of(model, h.reshape(-1, h.shape[-1])[b["target_at"]])
            other = F.cross_entropy(logits, b["gold"], reduction="sum")
            g1 = torch.autograd.grad(loss, model.model.language_model.layers[0].self_attn.q_proj.weight)[0]
            g2 = torch.autograd.grad(other, model.model.language_model.layers[0].self_attn.q_proj.weight)[0]
            print(kind, tuple(b["ids"].shape), f"{loss.item() / n:.6f} {other.item() / n:.6f}", f"gradient differs by {((g1 - g2).norm() / g2.norm()).item():.1e}")


if __name__ == "__main__":
    check()
