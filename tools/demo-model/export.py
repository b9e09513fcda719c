"""Writes the demo model as GGUF, in both packagings, and reads such files back into PyTorch.

    python export.py --weights FOLDER --single FILE.gguf      one file: text, vision, audio (the layout of Ollama's blobs)
    python export.py --weights FOLDER --pair NAME             NAME.gguf and NAME-mmproj.gguf (the layout of llama.cpp)
    --type f32|f16|q8_0                                       matrices; q8_0 is the default
"""

import argparse
import os

import gguf
import numpy as np
import torch

import calibrate
import checkpoint
import model as demo
from tokenizer import SPECIAL, DemoTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
T = gguf.GGMLQuantizationType
NAME = "Carat demo"

TEXT_GLOBAL = {"embed_tokens": "token_embd", "embed_tokens_per_layer": "per_layer_token_embd",
               "per_layer_model_projection": "per_layer_model_proj", "per_layer_projection_norm": "per_layer_proj_norm", "norm": "output_norm"}
TEXT_LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
              "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
              "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
              "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "post_feedforward_layernorm": "post_ffw_norm",
              "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm"}
VISION_LAYER = {"input_layernorm": "ln1", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
                "self_attn.o_proj": "attn_out", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
                "post_attention_layernorm": "attn_post_norm", "pre_feedforward_layernorm": "ln2", "mlp.gate_proj": "ffn_gate",
                "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "post_feedforward_layernorm": "ffn_post_norm"}
# HF name: (name in one file, name in an mmproj file)
AUDIO_LAYER = {"feed_forward1.pre_layer_norm": ("ffn_norm",) * 2, "feed_forward1.ffw_layer_1": ("ffn_up",) * 2,
               "feed_forward1.ffw_layer_2": ("ffn_down",) * 2, "feed_forward1.post_layer_norm": ("ffn_post_norm",) * 2,
               "norm_pre_attn": ("ln1", "attn_pre_norm"), "self_attn.q_proj": ("attn_q",) * 2, "self_attn.k_proj": ("attn_k",) * 2,
               "self_attn.v_proj": ("attn_v",) * 2, "self_attn.post": ("attn_out",) * 2,
               "self_attn.relative_k_proj": ("linear_pos", "attn_k_rel"), "self_attn.per_dim_scale": ("per_dim_scale",) * 2,
               "norm_post_attn": ("ln2", "attn_post_norm"), "lconv1d.pre_layer_norm": ("conv_norm",) * 2,
               "lconv1d.linear_start": ("conv_pw1",) * 2, "lconv1d.depthwise_conv1d": ("conv_dw",) * 2,
               "lconv1d.conv_norm": ("norm_conv",) * 2, "lconv1d.linear_end": ("conv_pw2",) * 2,
               "feed_forward2.pre_layer_norm": ("ffn_norm_1",) * 2, "feed_forward2.ffw_layer_1": ("ffn_up_1",) * 2,
               "feed_forward2.ffw_layer_2": ("ffn_down_1",) * 2, "feed_forward2.post_layer_norm": ("ffn_post_norm_1",) * 2,
               "norm_out": ("layer_pre_norm", "ln2")}
AUDIO_GLOBAL = {"subsample_conv_projection.layer0.conv": ("a.conv1d.0",) * 2, "subsample_conv_projection.layer0.norm": ("a.conv1d.0.norm",) * 2,
                "subsample_conv_projection.layer1.conv": ("a.conv1d.1",) * 2, "subsample_conv_projection.layer1.norm": ("a.conv1d.1.norm",) * 2,
                "subsample_conv_projection.input_proj_linear": ("a.pre_encode.out", "a.input_projection"),
                "output_proj": ("mm.a.fc", "a.pre_encode.out")}
BOUNDS = ("input_min", "input_max", "output_min", "output_max")


def gguf_name(name, single):
    """GGUF name of a parameter or bound of the PyTorch model."""
    k = 0 if single else 1
    if name == "model.embed_vision.embedding_projection.weight":
        return "mm.input_projection.weight"
    if name == "model.embed_audio.embedding_projection.weight":
        return "mm.a.input_projection.weight"
    part, rest = name.removeprefix("model.").split(".", 1)
    stem, leaf = rest.rsplit(".", 1)
    if leaf == "per_dim_scale":
        stem, leaf = rest, "weight"
    stem = stem.removesuffix(".linear")
    if part == "language_model":
        if stem.startswith("layers."):
            _, i, inner = (stem + ".").split(".", 2) if stem.count(".") > 1 else (None, stem.split(".")[1], "")
            if leaf == "layer_scalar":
                return f"blk.{i}.layer_output_scale.weight"
            return f"blk.{i}.{TEXT_LAYER[inner.rstrip('.')]}.{leaf}"
        return f"{TEXT_GLOBAL[stem]}.{leaf}"
    if part == "vision_tower":
        if rest == "patch_embedder.position_embedding_table":
            return "v.position_embd.weight"
        if stem == "patch_embedder.input_proj":
            return "v.patch_embd.weight"
        _, _, i, inner = stem.split(".", 3)
        return f"v.blk.{i}.{VISION_LAYER[inner]}.{leaf}"
    if stem in AUDIO_GLOBAL:
        return f"{AUDIO_GLOBAL[stem][k]}.{leaf}"
    _, i, inner = stem.split(".", 2)
    return f"a.blk.{i}.{AUDIO_LAYER[inner][k]}.{leaf}"


def to_gguf_layout(name, a):
    """The array as GGUF stores it, in row-major order (the first ne is the last axis)."""
    if name == "v.patch_embd.weight":
        o = a.shape[0]
        return a.reshape(o, 16, 16, 3).transpose(0, 3, 1, 2)
    if name.endswith("per_dim_scale.weight"):
        return np.log1p(np.exp(a))
    if name.endswith("conv_dw.weight"):
        return a[:, 0, :]
    return a.reshape(1) if a.ndim == 0 else a


def from_gguf_layout(name, a):
    if name == "v.patch_embd.weight":
        return a.transpose(0, 2, 3, 1).reshape(a.shape[0], 768)
    if name.endswith("per_dim_scale.weight"):
        return np.log(np.expm1(a))
    if name.endswith("conv_dw.weight"):
        return a[:, None, :]
    return a


def tensor_type(name, a, kind):
    """Types follow what published files do: 1-D, convolutions and positions in F32, the patch embedding in F16."""
    if a.ndim == 1 or name.startswith("a.conv1d") or name.endswith("conv_dw.weight") or name == "v.position_embd.weight":
        return T.F32
    if kind == "f32":
        return T.F32
    if name in ("v.patch_embd.weight",) or a.shape[-1] % 32:
        return T.F16
    if name == "per_layer_model_proj.weight":
        return T.F16
    if kind == "f16":
        return T.F16
    return T.Q5_0 if name == "per_layer_token_embd.weight" else T.Q8_0


def state(model):
    """Parameters, layer scalars and clipping bounds by PyTorch name."""
    out = {n: p for n, p in model.named_parameters()}
    for n, b in model.named_buffers():
        if n.endswith("layer_scalar") or n.rsplit(".", 1)[1] in BOUNDS:
            out[n] = b
    return {n: p.detach().float().cpu().numpy() for n, p in out.items()}


def add_tensor(w, name, a, kind):
    a = np.ascontiguousarray(to_gguf_layout(name, a), dtype=np.float32)
    t = tensor_type(name, a, kind)
    if t == T.F32:
        w.add_tensor(name, a)
    elif t == T.F16:
        w.add_tensor(name, a.astype(np.float16))
    else:
        w.add_tensor(name, gguf.quants.quantize(a, t), raw_dtype=t)


def add_text_metadata(w, model, tokenizer, kind, single):
    c = model.config.text_config
    p = "gemma4."
    n_full = sum(x.numel() for x in model.parameters())
    w.add_type("model")
    w.add_name(NAME)
    w.add_size_label(f"{n_full / 1e6:.1f}M")
    w.add_license("Apache-2.0")
    u, f, s = w.add_uint32, w.add_float32, w.add_string
    u(p + "block_count", c.num_hidden_layers)
    u(p + "context_length", c.max_position_embeddings)
    u(p + "embedding_length", c.hidden_size)
    shared = c.num_hidden_layers - c.num_kv_shared_layers
    w.add_array(p + "feed_forward_length", [c.intermediate_size * (2 if i >= shared else 1) for i in range(c.num_hidden_layers)])
    u(p + "attention.head_count", c.num_attention_heads)
    u(p + "attention.head_count_kv", c.num_key_value_heads)
    f(p + "rope.freq_base", 1000000.0)
    f(p + "rope.freq_base_swa", 10000.0)
    f(p + "attention.layer_norm_rms_epsilon", 1e-6)
    for key in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        u(p + key, 128)
        u(p + key + "_swa", 64)
    f(p + "final_logit_softcapping", c.final_logit_softcapping)
    u(p + "attention.sliding_window", c.sliding_window)
    u(p + "attention.shared_kv_layers", c.num_kv_shared_layers)
    u(p + "embedding_length_per_layer_input", c.hidden_size_per_layer_input)
    w.add_array(p + "attention.sliding_window_pattern", [t == "sliding_attention" for t in c.layer_types])
    u("general.quantization_version", 2)
    u("general.file_type", {"f32": 0, "f16": 1, "q8_0": 7}[kind])
    t = "tokenizer.ggml."
    ids = tokenizer.ids
    n = len(tokenizer.tokens)
    s(t + "model", "llama" if single else "gemma4")
    if single:
        s(t + "pre", "gemma4")
    visible = {"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", '<|"|>'}
    types = []
    for token in tokenizer.tokens:
        if token in SPECIAL:
            types.append(4 if not single and token in visible else 3)
        else:
            types.append(6 if not single and len(token) == 6 and token.startswith("<0x") else 1)
    w.add_array(t + "tokens", tokenizer.tokens)
    w.add_array(t + "scores", [float(i) for i in range(n)] if single else [-1000.0] * n)
    w.add_array(t + "token_type", types)
    w.add_array(t + "merges", tokenizer.merges)
    w.add_bool(t + "add_bos_token", not single)
    if not single:
        w.add_bool(t + "add_space_prefix", False)
    u(t + "bos_token_id", ids["<bos>"])
    u(t + "eos_token_id", ids["<eos>"] if single else ids["<turn|>"])
    u(t + "unknown_token_id", ids["<unk>"])
    u(t + "padding_token_id", ids["<pad>"])
    u(t + "mask_token_id", ids["<mask>"])
    if single:
        w.add_array(t + "eos_token_ids", [ids["<eos>"], ids["<turn|>"], ids["<|tool_response>"]])


def add_media_metadata(w, model, single, kind):
    v, a = model.config.vision_config, model.config.audio_config
    d = model.config.text_config.hidden_size
    p = "gemma4." if single else "clip."
    u, f = w.add_uint32, w.add_float32
    if not single:
        w.add_type("mmproj")
        w.add_name(NAME)
        u("general.file_type", {"f32": 0, "f16": 1, "q8_0": 7}[kind])
        u("general.quantization_version", 2)
        w.add_bool("clip.has_vision_encoder", True)
        w.add_bool("clip.has_audio_encoder", True)
        w.add_string("clip.vision.projector_type", "gemma4v")
        w.add_string("clip.audio.projector_type", "gemma4a")
        u("clip.vision.projection_dim", d)
        u("clip.audio.projection_dim", d)
        u("clip.vision.image_size", 224)
        u("clip.audio.num_mel_bins", 128)
        w.add_array("clip.vision.image_mean", [0.0, 0.0, 0.0])
        w.add_array("clip.vision.image_std", [1.0, 1.0, 1.0])
    else:
        u("gemma4.vision.num_channels", 3)
        u("gemma4.audio.conv_kernel_size", a.conv_kernel_size)
    u(p + "vision.block_count", v.num_hidden_layers)
    u(p + "vision.embedding_length", v.hidden_size)
    u(p + "vision.feed_forward_length", v.intermediate_size)
    u(p + "vision.patch_size", v.patch_size)
    u(p + "vision.attention.head_count", v.num_attention_heads)
    u(p + "vision.projector.scale_factor", v.pooling_kernel_size)
    f(p + "vision.attention.layer_norm_epsilon", v.rms_norm_eps)
    u(p + "audio.block_count", a.num_hidden_layers)
    u(p + "audio.embedding_length", a.hidden_size)
    u(p + "audio.feed_forward_length", 4 * a.hidden_size)
    u(p + "audio.attention.head_count", a.num_attention_heads)
    f(p + "audio.attention.layer_norm_epsilon", a.rms_norm_eps)


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write(model, tokenizer, path, kind, text, media, single):
    w = gguf.GGUFWriter(path, "gemma4" if text else "clip")
    if text:
        add_text_metadata(w, model, tokenizer, kind, single)
    if media:
        add_media_metadata(w, model, single, kind)
    arrays = {gguf_name(n, single): a for n, a in state(model).items()}
    if text:
        pairs = model.config.text_config.per_layer_config[model.config.text_config.layer_types.index("full_attention")].head_dim // 2
        arrays["rope_freqs.weight"] = np.where(np.arange(pairs) < pairs // 4, 1.0, 1e30).astype(np.float32)
    for name in sorted(arrays):
        is_media = name.startswith(("v.", "a.", "mm."))
        if media if is_media else text:
            add_tensor(w, name, arrays[name], kind)
    finish(w)
    print(f"{path}: {os.path.getsize(path)} bytes")


@torch.no_grad()
def load_gguf(model, *paths):
    """Dequantises a file (or a text file and its mmproj) into the PyTorch model."""
    arrays = {}
    single = len(paths) == 1
    for path in paths:
        for t in gguf.GGUFReader(path).tensors:
            shape = tuple(int(x) for x in reversed(t.shape))
            arrays[t.name] = gguf.quants.dequantize(t.data, t.tensor_type).reshape(shape).astype(np.float32)
    for name, p in list(model.named_parameters()) + list(model.named_buffers()):
        if name.endswith("layer_scalar") or "." in name and name.rsplit(".", 1)[1] in BOUNDS or isinstance(p, torch.nn.Parameter):
            key = gguf_name(name, single)
            if key not in arrays:
                raise ValueError(f"{paths[0]} lacks {key}")
            a = from_gguf_layout(key, arrays[key])
            p.copy_(torch.from_numpy(np.ascontiguousarray(a)).reshape(p.shape))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--weights", required=True)
    a.add_argument("--single")
    a.add_argument("--pair")
    a.add_argument("--type", default="q8_0", choices=["f32", "f16", "q8_0"])
    args = a.parse_args()
    tokenizer = DemoTokenizer(os.path.join(HERE, "tokenizer.json"))
    model = demo.build(tokenizer.ids, len(tokenizer.tokens))
    checkpoint.load(model, args.weights)
    calibrate.set_bounds(model.eval(), tokenizer)
    if args.single:
        write(model, tokenizer, args.single, args.type, True, True, True)
    if args.pair:
        write(model, tokenizer, args.pair + ".gguf", args.type, True, False, False)
        write(model, tokenizer, args.pair + "-mmproj.gguf", args.type, False, True, False)


if __name__ == "__main__":
    main()
