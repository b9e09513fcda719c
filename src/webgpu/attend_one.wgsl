// attend_one: attention of a single position, from raw projections to pieces. One workgroup of 256 for one query head and one piece
// of its keys; keys and values in 16 bits.
//
// All a workgroup needs from memory is asked for before any of it is used, since with one position the waits are what takes time.
// Every workgroup norms and rotates its query. STORES: the new key and value come with the query and are made by every workgroup
// for itself; of those whose piece ends at the new position the first query head of each key head also stores them. Then tiles of
// keys: LANES invocations share a key's score; for the values each invocation owns 8 elements of every GROUPS-th key.
//
// ENTERS: qkv is what the end of the layer before has left (end_enter.wgsl, layer_entry.c). With r and c, the factors of the stream's
// norms, a raw projection is c (qkv[k] + r qkv[OTHER_AT + k]). The first workgroup also writes the settled stream.
struct Params {
    q_norm_at: u32,
    k_norm_at: u32,
    position: u32,
    low: u32, // first key that is seen
    capacity: u32,
    piece: u32, // keys in a piece, a multiple of TILE
    n_pieces: u32,
    eps: f32,
    post_norm_at: u32, // from here on of the stream, with ENTERS
    scale: f32,
    stream_eps: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write qkv: array<f32>
#bind write rope: array<f32>
#bind read vectors: array<f32>
#bind write keys: array<vec4<u32>>
#bind write values: array<vec4<u32>>
#bind write out: array<vec4<f32>>
#if PIECES
#bind write marks: array<vec2<f32>>
#end
#if ENTERS
#bind write settled: array<f32>
#end
#use reduce WG=256

const HD = ${HD}u;
const PAIRS = HD / 2u;       // of elements that turn together, and of neighbours that make a word of the cache
const QUADS = HD / 8u;       // vectors of 4 words in a head
const TILE = ${TILE}u;       // keys
const LANES = 256u / TILE;   // of a key
const GROUPS = 256u / QUADS; // of invocations, for the values
const N_KV_HEADS = ${N_KV_HEADS}u;
const PER_KV = ${N_HEADS}u / N_KV_HEADS;
var<workgroup> q: array<f32, HD>;
#if STORES
var<workgroup> new_key: array<f32, HD>;
var<workgroup> new_value: array<f32, HD>;
#end
var<workgroup> scores: array<f32, TILE>;
var<workgroup> totals: array<f32, GROUPS>;
var<workgroup> sums: array<vec4<f32>, 512>;

// A tile's keys and values, as they come from the cache.
#for i ${STEPS}
var<private> key${i}: vec4<u32>;
var<private> value${i}: vec4<u32>;
#end

// Where the key i positions after the one in slot `base` lies, in vectors.
fn place(base: u32, i: u32, kv_head: u32) -> u32 {
    let slot = base + i;
    return ((slot - select(0u, p.capacity, slot >= p.capacity)) * N_KV_HEADS + kv_head) * QUADS;
}

// Keys behind `limit` repeat the last one: they will count nothing.
fn ask(tile: u32, limit: u32, kv_head: u32, t: u32) {
    let base = tile % p.capacity;
    let last = limit - tile - 1u;
    let at = place(base, min(t / LANES, last), kv_head) + t % LANES;
#for i ${STEPS}
    key${i} = keys[at + ${i}u * LANES];
#end
#for i ${STEPS}
    value${i} = values[place(base, min(t / QUADS + ${i}u * GROUPS, last), kv_head) + t % QUADS];
#end
}

// Elements 8 w .. 8 w + 7 of a new key or value as the cache will hold them.
fn packed(a: vec4<f32>, b: vec4<f32>) -> vec4<u32> {
    return vec4<u32>(pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy), pack2x16float(b.zw));
}

// Vector w of what invocations store by elements. It is not kept in vectors: there one might undo what another did.
fn query(w: u32) -> vec4<f32> {
    return vec4<f32>(q[4u * w], q[4u * w + 1u], q[4u * w + 2u], q[4u * w + 3u]);
}
#if STORES

fn key_of_now(w: u32) -> vec4<f32> {
    return vec4<f32>(new_key[4u * w], new_key[4u * w + 1u], new_key[4u * w + 2u], new_key[4u * w + 3u]);
}

fn value_of_now(w: u32) -> vec4<f32> {
    return vec4<f32>(new_value[4u * w], new_value[4u * w + 1u], new_value[4u * w + 2u], new_value[4u * w + 3u]);
}
#end

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let h = group.x;
    let kv_head = h / PER_KV;
    // Elements i and i + PAIRS turn together.
    let i = t % PAIRS;
    let q_at = h * HD + i;
    var q_pair = vec2<f32>(qkv[q_at], qkv[q_at + PAIRS]);
    let turn = vec2<f32>(rope[i], rope[i + PAIRS]);
#if STORES
    let k_at = (${N_HEADS}u + kv_head) * HD + i;
    let v_at = (${V_FIRST}u + kv_head) * HD + i;
    var k_pair = vec2<f32>(qkv[k_at], qkv[k_at + PAIRS]);
    var v_pair = vec2<f32>(qkv[v_at], qkv[v_at + PAIRS]);
    let k_norm = vec2<f32>(vectors[p.k_norm_at + i], vectors[p.k_norm_at + i + PAIRS]);
#end
    let q_norm = vec2<f32>(vectors[p.q_norm_at + i], vectors[p.q_norm_at + i + PAIRS]);
#if ENTERS
    let q_other = vec2<f32>(qkv[${OTHER_AT}u + q_at], qkv[${OTHER_AT}u + q_at + PAIRS]);
#if STORES
    let k_other = vec2<f32>(qkv[${OTHER_AT}u + k_at], qkv[${OTHER_AT}u + k_at + PAIRS]);
    let v_other = vec2<f32>(qkv[${OTHER_AT}u + v_at], qkv[${OTHER_AT}u + v_at + PAIRS]);
#end
    // The stream is scale (x + r y), where r norms the term.
#for s ${D_ROUNDS}
    let c${s} = ${s}u * 256u + t;
    var x${s} = 0.0;
    var term${s} = 0.0;
    var y${s} = 0.0;
    if (c${s} < ${D}u) {
        x${s} = qkv[${X_AT}u + c${s}];
        term${s} = qkv[${TERM_AT}u + c${s}];
        y${s} = vectors[p.post_norm_at + c${s}] * term${s};
    }
#end
#end
    let begin = p.low + group.z * p.piece;
    let limit = min(begin + p.piece, p.position + 1u);
    ask(begin, limit, kv_head, t);

#if ENTERS
    var parts = vec4<f32>(0.0);
#for s ${D_ROUNDS}
    parts += vec4<f32>(term${s} * term${s}, x${s} * x${s}, x${s} * y${s}, y${s} * y${s});
#end
    parts = group_sums(parts, t) / f32(${D}u);
    let r = 1.0 / sqrt(parts.x + p.stream_eps);
    // The mean square of the stream, from that of its parts. Of this factor the norms below leave little more than their eps.
    let square = max(dot(parts.yzw, vec3<f32>(1.0, 2.0 * r, r * r)), 0.0) * p.scale * p.scale;
    let c = p.scale / sqrt(square + p.stream_eps);
    q_pair = c * (q_pair + r * q_other);
#if STORES
    k_pair = c * (k_pair + r * k_other);
    v_pair = c * (v_pair + r * v_other);
#end
    if (h == 0u && group.z == 0u) {
#for s ${D_ROUNDS}
        if (c${s} < ${D}u) {
            settled[c${s}] = p.scale * (x${s} + r * y${s});
        }
#end
    }
#end
    let counts = select(0.0, 1.0, t < PAIRS);
#if STORES
    let squares = group_sums(counts * vec4<f32>(dot(q_pair, q_pair), dot(k_pair, k_pair), dot(v_pair, v_pair), 0.0), t);
    let factors = 1.0 / sqrt(squares / f32(HD) + p.eps);
    q_pair *= factors.x * q_norm;
    k_pair *= factors.y * k_norm;
    v_pair *= factors.z;
#else
    q_pair *= 1.0 / sqrt(group_sum(counts * dot(q_pair, q_pair), t) / f32(HD) + p.eps) * q_norm;
#end
    if (t < PAIRS) {
        let j = i + PAIRS;
        q[i] = q_pair.x * turn.x - q_pair.y * turn.y;
        q[j] = q_pair.y * turn.x + q_pair.x * turn.y;
#if STORES
        new_key[i] = k_pair.x * turn.x - k_pair.y * turn.y;
        new_key[j] = k_pair.y * turn.x + k_pair.x * turn.y;
        new_value[i] = v_pair.x;
        new_value[j] = v_pair.y;
#end
    }
    workgroupBarrier();
#if STORES
    if (limit == p.position + 1u && h % PER_KV == 0u && t < QUADS) {
        let at = ((p.position % p.capacity) * N_KV_HEADS + kv_head) * QUADS + t;
        keys[at] = packed(key_of_now(2u * t), key_of_now(2u * t + 1u));
        values[at] = packed(value_of_now(2u * t), value_of_now(2u * t + 1u));
    }
#end

    var largest = -3.0e38;
    var total = 0.0;
    var sum0 = vec4<f32>(0.0);
    var sum1 = vec4<f32>(0.0);
    for (var tile = begin; tile < limit; tile += TILE) {
        let key = tile + t / LANES;
#if STORES
        if (key == p.position) {
#for i ${STEPS}
            {
                let w = 2u * (t % LANES + ${i}u * LANES);
                key${i} = packed(key_of_now(w), key_of_now(w + 1u));
            }
#end
        }
        let column = 2u * (t % QUADS);
#for i ${STEPS}
        // Behind it too, where what the cache held before was asked for: no number must stay out even with a weight of 0.
        if (tile + t / QUADS + ${i}u * GROUPS >= p.position) {
            value${i} = packed(value_of_now(column), value_of_now(column + 1u));
        }
#end
#end
        var score = 0.0;
#for i ${STEPS}
        {
            let w = 2u * (t % LANES + ${i}u * LANES);
            score += dot(query(w), vec4<f32>(unpack2x16float(key${i}.x), unpack2x16float(key${i}.y)))
                + dot(query(w + 1u), vec4<f32>(unpack2x16float(key${i}.z), unpack2x16float(key${i}.w)));
        }
#end
#if LANE_SHUFFLES
#for i ${LANE_SHUFFLES}
        score += subgroupShuffleXor(score, 1u << ${i}u);
#end
#else
        sums[t].x = score; // they are free until the end
        workgroupBarrier();
        if (t % LANES == 0u) {
            for (var lane = 1u; lane < LANES; lane++) {
                score += sums[t + lane].x;
            }
        }
#end
        if (t % LANES == 0u) {
            scores[t / LANES] = select(-3.0e38, score, key < limit);
        }
        workgroupBarrier();
#if SUBGROUPS
        var top = scores[t % TILE];
        for (var s = ${SG}u; s < TILE; s += ${SG}u) {
            top = max(top, scores[(t + s) % TILE]);
        }
        top = max(largest, subgroup_max(top));
#else
        var top = largest;
        for (var s = 0u; s < TILE; s++) {
            top = max(top, scores[s]);
        }
#end
        let fade = exp(largest - top);
        largest = top;
        total *= fade;
        sum0 *= fade;
        sum1 *= fade;
#for i ${STEPS}
        {
            let weight = exp(scores[t / QUADS + ${i}u * GROUPS] - top);
            total += weight;
            sum0 += weight * vec4<f32>(unpack2x16float(value${i}.x), unpack2x16float(value${i}.y));
            sum1 += weight * vec4<f32>(unpack2x16float(value${i}.z), unpack2x16float(value${i}.w));
        }
#end
        if (tile + TILE < limit) {
            ask(tile + TILE, limit, kv_head, t);
            workgroupBarrier();
        }
    }

    // The groups add up, and so do their weights.
    sums[2u * t] = sum0;
    sums[2u * t + 1u] = sum1;
    if (t % QUADS == 0u) {
        totals[t / QUADS] = total;
    }
    workgroupBarrier();
    var sum = vec4<f32>(0.0);
    total = 0.0;
    for (var g = 0u; g < GROUPS; g++) {
        sum += sums[g * 2u * QUADS + t % (2u * QUADS)];
        total += totals[g];
    }
#if PIECES
    let at = h * p.n_pieces + group.z;
    if (t == 0u) {
        marks[at] = vec2<f32>(largest, total);
    }
#else
    let at = h;
    sum /= total;
#end
    if (t < 2u * QUADS) {
        out[at * 2u * QUADS + t] = sum;
    }
}
