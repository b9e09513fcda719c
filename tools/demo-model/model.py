"""The demo model: Gemma 4's own classes in a small size, and the forward pass used for training.

Text: 8 layers, 256 wide, every fourth layer global, the last three without keys and values of their own and twice as wide
inside; per-layer embeddings of 64. Vision: 4 layers, 192 wide. Audio: 3 conformer layers, 192 wide. Both towers have
clipped linears, as the E2B model has.
"""

import math

import torch
import torch.nn.functional as F
from transformers import Gemma4Config, Gemma4ForConditionalGeneration
from transformers.models.gemma4 import modeling_gemma4

import sounds

LAYER_TYPES = ["sliding_attention"] * 3 + ["full_attention"] + ["sliding_attention"] * 3 + ["full_attention"]
WINDOW = 128
CONTEXT = 2048


def make_config(ids, vocab_size):
    """ids: marker text -> id."""
    text = dict(
        vocab_size=vocab_size, vocab_size_per_layer_input=vocab_size, hidden_size=256, intermediate_size=512,
        num_hidden_layers=len(LAYER_TYPES), layer_types=LAYER_TYPES, num_kv_shared_layers=3, use_double_wide_mlp=True,
        num_attention_heads=4, num_key_value_heads=1, head_dim=64,
        per_layer_config={str(i): {"head_dim": 128} for i, t in enumerate(LAYER_TYPES) if t == "full_attention"},
        hidden_size_per_layer_input=64, sliding_window=WINDOW, max_position_embeddings=CONTEXT, final_logit_softcapping=30.0,
        hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6, tie_word_embeddings=True, attention_k_eq_v=False,
        enable_moe_block=False, use_bidirectional_attention=None, bos_token_id=ids["<bos>"], eos_token_id=ids["<eos>"],
        pad_token_id=ids["<pad>"],
        rope_parameters={"full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})
    vision = dict(hidden_size=192, intermediate_size=512, num_hidden_layers=4, num_attention_heads=3, num_key_value_heads=3, head_dim=64,
                  patch_size=16, pooling_kernel_size=3, position_embedding_size=432, standardize=False, use_clipped_linears=True,
                  hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6, rope_parameters={"rope_type": "axial", "rope_theta": 100.0})
    audio = dict(hidden_size=192, num_hidden_layers=3, num_attention_heads=4, output_proj_dims=256, use_clipped_linears=True,
                 subsampling_conv_channels=[128, 32], conv_kernel_size=5, attention_chunk_size=12, attention_context_left=13,
                 attention_context_right=0, attention_logit_cap=50.0, residual_weight=0.5, rms_norm_eps=1e-6, hidden_act="silu")
    return Gemma4Config(text_config=text, vision_config=vision, audio_config=audio, tie_word_embeddings=True,
                        image_token_id=ids["<|image|>"], audio_token_id=ids["<|audio|>"], video_token_id=ids["<|video|>"],
                        boi_token_id=ids["<|image>"], eoi_token_id=ids["<image|>"], boa_token_id=ids["<|audio>"],
                        eoa_token_index=ids["<audio|>"])


@torch.no_grad()
def initialise(model, seed=1):
    """Random weights that start calm: the attention has no scale of its own, so the query and key norms carry it."""
    g = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            p.fill_(p.shape[0] ** -0.25)
        elif "position_embedding_table" in name:
            p.copy_(torch.randn(p.shape, generator=g) * 0.02)
        elif "embed_tokens_per_layer" in name:
            p.copy_(torch.randn(p.shape, generator=g) * 0.02)
        elif "embed_tokens" in name:
            p.copy_(torch.randn(p.shape, generator=g) * 0.03)
        elif name.endswith(("layernorm.weight", "norm.weight", "norm_out.weight", "norm_pre_attn.weight", "norm_post_attn.weight",
                            "norm_1.weight", "norm_2.weight")) and p.ndim == 1:
            # What each block adds starts small.
            after = ("post_attention_layernorm" in name or "post_feedforward_layernorm" in name or "post_per_layer_input_norm" in name
                     or "post_layer_norm" in name or "norm_post_attn" in name)
            p.fill_(0.3 if after else 1.0)
        elif p.ndim >= 2:
            fan_in = p[0].numel()
            p.copy_(torch.randn(p.shape, generator=g) * (0.7 / math.sqrt(fan_in)))
    return model


def build(ids, vocab_size, seed=1):
    config = make_config(ids, vocab_size)
    config._attn_implementation = "sdpa"
    return initialise(Gemma4ForConditionalGeneration(config), seed)


def use_fused_norm():
    """The same RMS norm through PyTorch's fused kernel."""
    def forward(self, x):
        w = self.weight.float() if self.with_scale else None
        return F.rms_norm(x.float(), (x.shape[-1],), w, self.eps).type_as(x)

    modeling_gemma4.Gemma4RMSNorm.forward = forward


def causal_masks(n, device):
    """Masks by layer type; None means plain causal."""
    if n <= WINDOW:
        return {"full_attention": None, "sliding_attention": None}
    i = torch.arange(n, device=device)
    d = i[:, None] - i[None, :]
    return {"full_attention": None, "sliding_attention": ((d >= 0) & (d < WINDOW))[None, None]}


def log_mel(waves, lengths):
    """waves [b, n] padded with zeros -> features [b, frames, 128], mask [b, frames]."""
    device = waves.device
    window = torch.hann_window(320, periodic=True, dtype=torch.float64, device=device).float()
    filters = torch.tensor(sounds.mel_filters(), dtype=torch.float32, device=device)
    x = F.pad(waves, (160, 160)).unfold(1, 320, 160)
    spectrum = torch.fft.rfft(x * window, n=512).abs()
    mel = torch.log(spectrum @ filters + 0.001)
    count = torch.clamp((lengths + 160 - 321) // 160 + 1, min=0)
    n = int(count.max())
    mel = mel[:, :n]
    mask = torch.arange(n, device=device)[None] < count[:, None]
    return mel * mask[..., None], mask


def hidden_states(model, ids, image=None, audio=None):
    """Last hidden states [b, s, d] for right-padded ids. image: (pixel values, positions); audio: (features, mask)."""
    core = model.model
    text = core.language_model
    c = model.config
    is_image, is_audio = ids == c.image_token_id, ids == c.audio_token_id
    plain = torch.where(is_image | is_audio, 0, ids)
    x = text.embed_tokens(plain)
    ple = text.get_per_layer_inputs(plain, None)
    if image is not None:
        pixels, positions = image
        soft = core.embed_vision(core.vision_tower(pixel_values=pixels, pixel_position_ids=positions).last_hidden_state)
        x = x.masked_scatter(is_image[..., None].expand_as(x), soft.to(x.dtype))
    if audio is not None:
        features, mask = audio
        out = core.audio_tower(features, mask)
        soft = core.embed_audio(out.last_hidden_state)[out.attention_mask]
        x = x.masked_scatter(is_audio[..., None].expand_as(x), soft.to(x.dtype))
    return text(inputs_embeds=x, per_layer_inputs=ple, attention_mask=causal_masks(ids.shape[1], ids.device), use_cache=False).last_hidden_state


def logits_of(model, h):
    cap = model.config.text_config.final_logit_softcapping
    return cap * torch.tanh(model.lm_head(h).float() / cap)


def target_loss(model, h, ids, target):
    """Sum of the cross entropies of target tokens, their number, and how many were predicted right."""
    where = target[:, 1:].bool()
    logits = logits_of(model, h[:, :-1][where])
    gold = ids[:, 1:][where]
    loss = F.cross_entropy(logits, gold, reduction="sum")
    return loss, gold.numel(), (logits.argmax(-1) == gold).sum()
