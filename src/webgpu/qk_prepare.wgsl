// qk_prepare: norms and rotates queries in place; norms, rotates and stores keys; norms and stores values. One workgroup for each
// head of each row: first the query heads, then the key heads, then the value heads.
struct Params {
    n_heads: u32,
    n_kv_heads: u32,
    qkv_cols: u32,
    v_first: u32, // column of the first value head; that of the first key head when values are raw keys
    q_norm_at: u32,
    k_norm_at: u32,
    first_position: u32,
    capacity: u32,
    eps: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write qkv: array<f32>
#bind write rope: array<f32>
#bind read vectors: array<f32>
#if STORES
#bind write keys: array<${KV_WORD}>
#bind write cached: array<${KV_WORD}>
#end
#use reduce WG=64

const HD = ${HD}u;
var<workgroup> head: array<f32, HD>;

fn rotated(row: u32, i: u32) -> f32 {
    let half = HD / 2u;
    let at = row * HD;
    if (i < half) {
        return head[i] * rope[at + i] - head[i + half] * rope[at + half + i];
    }
    return head[i] * rope[at + i - half] + head[i - half] * rope[at + i];
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = group.y;
    let h = group.x;
    let is_query = h < p.n_heads;
    let is_value = h >= p.n_heads + p.n_kv_heads;
    var at = row * p.qkv_cols + h * HD;
    if (is_value) {
        at = row * p.qkv_cols + p.v_first + (h - p.n_heads - p.n_kv_heads) * HD;
    }
    var squares = 0.0;
    for (var i = t; i < HD; i += 64u) {
        let v = qkv[at + i];
        squares += v * v;
    }
    let factor = 1.0 / sqrt(group_sum(squares, t) / f32(HD) + p.eps);
    let norm_at = select(p.k_norm_at, p.q_norm_at, is_query);
    for (var i = t; i < HD; i += 64u) {
        var v = qkv[at + i] * factor;
        if (!is_value) {
            v *= vectors[norm_at + i];
        }
        head[i] = v;
    }
    workgroupBarrier();
    if (is_query) {
        for (var i = t; i < HD; i += 64u) {
            qkv[at + i] = rotated(row, i);
        }
        return;
    }
#if STORES
    let kv_head = select(h - p.n_heads, h - p.n_heads - p.n_kv_heads, is_value);
    let slot = ((p.first_position + row) % p.capacity) * p.n_kv_heads + kv_head;
#if KV_F32
    for (var i = t; i < HD; i += 64u) {
        if (is_value) {
            cached[slot * HD + i] = head[i];
        } else {
            keys[slot * HD + i] = rotated(row, i);
        }
    }
#else
    for (var i = t; i < HD / 2u; i += 64u) {
        if (is_value) {
            cached[slot * (HD / 2u) + i] = pack2x16float(vec2<f32>(head[2u * i], head[2u * i + 1u]));
        } else {
            keys[slot * (HD / 2u) + i] = pack2x16float(vec2<f32>(rotated(row, 2u * i), rotated(row, 2u * i + 1u)));
        }
    }
#end
#end
}
