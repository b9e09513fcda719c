// attend: softmax(q . k) v for prepared queries. One workgroup of 128 for one query head of one row and one piece of its keys; tiles
// of 32 keys, four invocations share a key's score. PIECES: the results are the unnormalised sum, the largest score and the sum of
// weights, which `combine` joins.
struct Params {
    n_heads: u32,
    n_kv_heads: u32,
    qkv_cols: u32,
    first_position: u32,
    n_rows: u32,
    window: u32, // 0: all
    capacity: u32,
    piece: u32, // keys in a piece, a multiple of 32
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write qkv: array<f32>
#bind write keys: array<${KV_WORD}>
#bind write cached: array<${KV_WORD}>
#bind write out: array<f32>
#if PIECES
#bind write marks: array<vec2<f32>>
#end
#if LAST_KEY
#bind write last_key: array<i32>
#end

const HD = ${HD}u;
const WORDS = HD / 2u; // pairs of elements
var<workgroup> q: array<vec2<f32>, WORDS>;
var<workgroup> partial: array<f32, 128>;
var<workgroup> weights: array<f32, 32>;

fn key_pair(slot: u32, w: u32) -> vec2<f32> {
#if KV_F32
    return vec2<f32>(keys[(slot * WORDS + w) * 2u], keys[(slot * WORDS + w) * 2u + 1u]);
#else
    return unpack2x16float(keys[slot * WORDS + w]);
#end
}

fn value_pair(slot: u32, w: u32) -> vec2<f32> {
#if KV_F32
    return vec2<f32>(cached[(slot * WORDS + w) * 2u], cached[(slot * WORDS + w) * 2u + 1u]);
#else
    return unpack2x16float(cached[slot * WORDS + w]);
#end
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let h = group.x;
    let row = group.y;
    let kv_head = h / (p.n_heads / p.n_kv_heads);
    let position = p.first_position + row;
    var low = 0u;
    if (p.window > 0u && position >= p.window) {
        low = position - p.window + 1u;
    }
#if LAST_KEY
    let last = u32(last_key[row]);
    let limit = p.first_position + p.n_rows - 1u;
#else
    let last = position;
    let limit = position;
#end
    let begin = low + group.z * p.piece;
    let end = min(begin + p.piece, limit + 1u);
    for (var w = t; w < WORDS; w += 128u) {
        let at = row * p.qkv_cols + h * HD + 2u * w;
        q[w] = vec2<f32>(qkv[at], qkv[at + 1u]);
    }
    var largest = -3.0e38;
    var total = 0.0;
#for i ${OWN}
    var sum${i} = vec2<f32>(0.0);
#end
    workgroupBarrier();
    for (var tile = begin; tile < end; tile += 32u) {
        let key = tile + t / 4u;
        var score = 0.0;
        let seen = key < end && key <= last;
        if (seen) {
            let slot = (key % p.capacity) * p.n_kv_heads + kv_head;
            for (var w = t % 4u; w < WORDS; w += 4u) {
                score += dot(q[w], key_pair(slot, w));
            }
        }
        partial[t] = score;
        workgroupBarrier();
        if (t < 32u) {
            let s = partial[4u * t] + partial[4u * t + 1u] + partial[4u * t + 2u] + partial[4u * t + 3u];
            let k = tile + t;
            weights[t] = select(-3.0e38, s, k < end && k <= last);
        }
        workgroupBarrier();
        var top = largest;
        for (var i = 0u; i < 32u; i++) {
            top = max(top, weights[i]);
        }
        let fade = exp(largest - top);
        largest = top;
        workgroupBarrier();
        if (t < 32u) {
            let s = weights[t];
            weights[t] = select(exp(s - top), 0.0, s <= -2.9e38);
        }
        workgroupBarrier();
        var gain = 0.0;
#for i ${OWN}
        sum${i} *= fade;
#end
        for (var i = 0u; i < min(32u, end - tile); i++) {
            let weight = weights[i];
            gain += weight;
            let slot = ((tile + i) % p.capacity) * p.n_kv_heads + kv_head;
#for i ${OWN}
            if (t + ${i}u * 128u < WORDS) {
                sum${i} += weight * value_pair(slot, t + ${i}u * 128u);
            }
#end
        }
        total = total * fade + gain;
        workgroupBarrier();
    }
#if PIECES
    let at = (row * p.n_heads + h) * ${MAX_PIECES}u + group.z;
    if (t == 0u) {
        marks[at] = vec2<f32>(largest, total);
    }
    let factor = 1.0;
#else
    let at = row * p.n_heads + h;
    let factor = 1.0 / total;
#end
#for i ${OWN}
    if (t + ${i}u * 128u < WORDS) {
        out[at * HD + (t + ${i}u * 128u) * 2u] = sum${i}.x * factor;
        out[at * HD + (t + ${i}u * 128u) * 2u + 1u] = sum${i}.y * factor;
    }
#end
}
