// attend_one: attention of a single position, from raw projections to pieces. One workgroup of 256 for one query head and one piece
// of its keys; keys and values in 16 bits.
//
// Every workgroup norms and rotates its query. STORES: the new key and value come with the query; workgroups whose piece ends at the
// new position make them for themselves, the first query head of each key head also stores them. Then tiles of 64 keys: four
// invocations share a key's score; for the values each invocation owns a pair of elements of every VALUE_GROUPS-th key.
struct Params {
    n_heads: u32,
    n_kv_heads: u32,
    v_first: u32, // column of the first value head, or of the first key head when values are raw keys
    q_norm_at: u32,
    k_norm_at: u32,
    position: u32,
    low: u32, // first key that is seen
    capacity: u32,
    piece: u32, // keys in a piece, a multiple of 64
    n_pieces: u32,
    eps: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write qkv: array<vec2<f32>>
#bind write rope: array<f32>
#bind read vectors: array<vec2<f32>>
#bind write keys: array<vec4<u32>>
#bind write cached: array<u32>
#bind write out: array<vec2<f32>>
#if PIECES
#bind write marks: array<vec2<f32>>
#end
#use reduce WG=256

const HD = ${HD}u;
const WORDS = HD / 2u; // pairs of elements, 16-bit words of the cache
const QUADS = HD / 8u; // vectors of 4 words
const VALUE_GROUPS = 256u / WORDS;
var<workgroup> raw: array<f32, HD>;
var<workgroup> q: array<vec2<f32>, WORDS>;
var<workgroup> fresh: array<vec2<f32>, WORDS>; // the new key
var<workgroup> scores: array<f32, 64>;
var<workgroup> partial: array<f32, 256>;
var<workgroup> shares: array<vec2<f32>, 256>;

fn rotated(i: u32) -> f32 {
    let half = HD / 2u;
    if (i < half) {
        return raw[i] * rope[i] - raw[i + half] * rope[half + i];
    }
    return raw[i] * rope[i - half] + raw[i - half] * rope[i];
}

// The normed and rotated pair t of a head; all invocations must call.
fn prepared(first: u32, norm_at: u32, t: u32) -> vec2<f32> {
    var pair = vec2<f32>(0.0);
    if (t < WORDS) {
        pair = qkv[first + t];
    }
    let factor = 1.0 / sqrt(group_sum(dot(pair, pair), t) / f32(HD) + p.eps);
    if (t < WORDS) {
        pair *= factor * vectors[norm_at / 2u + t];
        raw[2u * t] = pair.x;
        raw[2u * t + 1u] = pair.y;
    }
    workgroupBarrier();
    var result = vec2<f32>(0.0);
    if (t < WORDS) {
        result = vec2<f32>(rotated(2u * t), rotated(2u * t + 1u));
    }
    return result;
}

// Where the key i positions after the one in slot `base` lies, in heads.
fn slot_of(base: u32, i: u32, kv_head: u32) -> u32 {
    var slot = base + i;
    while (slot >= p.capacity) {
        slot -= p.capacity;
    }
    return slot * p.n_kv_heads + kv_head;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let h = group.x;
    let per_kv = p.n_heads / p.n_kv_heads;
    let kv_head = h / per_kv;
    let begin = p.low + group.z * p.piece;
    let limit = min(begin + p.piece, p.position + 1u);
    let query = prepared(h * WORDS, p.q_norm_at, t);
    if (t < WORDS) {
        q[t] = query;
    }
#if STORES
    let has_new = limit == p.position + 1u;
    let end = limit - select(0u, 1u, has_new); // keys from the cache
    var new_value = vec2<f32>(0.0);
    if (has_new) {
        workgroupBarrier();
        let key = prepared((p.n_heads + kv_head) * WORDS, p.k_norm_at, t);
        var pair = vec2<f32>(0.0);
        if (t < WORDS) {
            pair = qkv[p.v_first / 2u + kv_head * WORDS + t];
        }
        new_value = pair / sqrt(group_sum(dot(pair, pair), t) / f32(HD) + p.eps);
        if (t < WORDS) {
            let packed_key = pack2x16float(key);
            let packed_value = pack2x16float(new_value);
            fresh[t] = unpack2x16float(packed_key); // as others will read it
            new_value = unpack2x16float(packed_value);
            if (h % per_kv == 0u) {
                let at = ((p.position % p.capacity) * p.n_kv_heads + kv_head) * WORDS + t;
                keys[at / 4u][at % 4u] = packed_key;
                cached[at] = packed_value;
            }
        }
    }
#else
    let end = limit;
#end
    workgroupBarrier();
    var largest = -3.0e38;
    var total = 0.0;
    var sum = vec2<f32>(0.0);
    for (var tile = begin; tile < end; tile += 64u) {
        let key = tile + t / 4u;
        let base = tile % p.capacity;
        var score = 0.0;
        if (key < end) {
            let at = slot_of(base, t / 4u, kv_head) * QUADS;
#for i ${QUAD_STEPS}
            {
                let w = ${i}u * 4u + t % 4u;
                let k = keys[at + w];
                score += dot(q[4u * w], unpack2x16float(k.x)) + dot(q[4u * w + 1u], unpack2x16float(k.y))
                    + dot(q[4u * w + 2u], unpack2x16float(k.z)) + dot(q[4u * w + 3u], unpack2x16float(k.w));
            }
#end
        }
#if SUBGROUPS
        score += subgroupShuffleXor(score, 1u);
        score += subgroupShuffleXor(score, 2u);
        if (t % 4u == 0u) {
            scores[t / 4u] = select(-3.0e38, score, key < end);
        }
#else
        partial[t] = score;
        workgroupBarrier();
        if (t < 64u) {
            scores[t] = select(-3.0e38, partial[4u * t] + partial[4u * t + 1u] + partial[4u * t + 2u] + partial[4u * t + 3u],
                tile + t < end);
        }
#end
        workgroupBarrier();
        let mine = scores[t % 64u];
        let top = max(largest, group_max(mine, t));
        let fade = exp(largest - top);
        largest = top;
        if (t < 64u) {
            scores[t] = select(exp(mine - top), 0.0, mine <= -2.9e38);
        }
        workgroupBarrier();
        sum *= fade;
        total *= fade;
        // Several values are asked for before the first is used. Behind the last key the weights are 0.
        let n = min(64u, end - tile);
        for (var first = t / WORDS; first < n; first += ${UNROLL}u * VALUE_GROUPS) {
#for j ${UNROLL}
            let value${j} = cached[slot_of(base, min(first + ${j}u * VALUE_GROUPS, n - 1u), kv_head) * WORDS + t % WORDS];
#end
#for j ${UNROLL}
            let weight${j} = scores[first + ${j}u * VALUE_GROUPS];
            total += weight${j};
            sum += weight${j} * unpack2x16float(value${j});
#end
        }
        workgroupBarrier();
    }
    // The groups of values add up, and so do their weights.
    shares[t] = sum;
    partial[t] = total;
    workgroupBarrier();
    sum = vec2<f32>(0.0);
    total = 0.0;
    for (var g = 0u; g < VALUE_GROUPS; g++) {
        sum += shares[g * WORDS + t % WORDS];
        total += partial[g * WORDS];
    }
#if STORES
    if (has_new) {
        var part = 0.0;
        if (t < WORDS) {
            part = dot(q[t], fresh[t]);
        }
        let score = group_sum(part, t);
        let top = max(largest, score);
        let fade = exp(largest - top);
        let weight = exp(score - top);
        sum = sum * fade + weight * new_value;
        total = total * fade + weight;
        largest = top;
    }
#end
#if PIECES
    let at = h * p.n_pieces + group.z;
    if (t == 0u) {
        marks[at] = vec2<f32>(largest, total);
    }
    let factor = 1.0;
#else
    let at = h;
    let factor = 1.0 / total;
#end
    if (t < WORDS) {
        out[at * WORDS + t] = sum * factor;
    }
}
