// attend_one: attention of a single position, from raw projections to pieces. One workgroup of 256 for one query head and one piece
// of its keys; keys and values in 16 bits.
//
// All a workgroup needs from memory is asked for before any of it is used, since with one position the waits are what takes time.
// Every workgroup norms and rotates its query. STORES: the new key and value come with the query and are made by every workgroup for
// itself; of those whose piece ends at the new position the first query head of each key head also stores them. Then tiles of keys:
// LANES invocations share a key's score; for the values each invocation owns 8 elements of every GROUPS-th key.
struct Params {
    q_norm_at: u32,
    k_norm_at: u32,
    position: u32,
    low: u32, // first key that is seen
    capacity: u32,
    piece: u32, // keys in a piece, a multiple of TILE
    n_pieces: u32,
    eps: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write qkv: array<vec4<f32>>
#bind write rope: array<vec4<f32>>
#bind read vectors: array<vec4<f32>>
#bind write keys: array<vec4<u32>>
#bind write values: array<vec4<u32>>
#bind write out: array<vec4<f32>>
#if PIECES
#bind write marks: array<vec2<f32>>
#end
#use reduce WG=256

const HD = ${HD}u;
const QUADS = HD / 8u;       // vectors of 4 words of the cache in a head, and of 4 elements in half of it
const TILE = ${TILE}u;       // keys
const LANES = 256u / TILE;   // of a key
const GROUPS = 256u / QUADS; // of invocations, for the values
const N_KV_HEADS = ${N_KV_HEADS}u;
const PER_KV = ${N_HEADS}u / N_KV_HEADS;
var<workgroup> q: array<vec4<f32>, 2u * QUADS>;
#if STORES
var<workgroup> new_key: array<vec4<f32>, 2u * QUADS>;
var<workgroup> new_value: array<vec4<f32>, 2u * QUADS>;
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

fn squares_of(a: vec4<f32>, b: vec4<f32>) -> f32 {
    return dot(a, a) + dot(b, b);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let h = group.x;
    let kv_head = h / PER_KV;
    // Elements 4 i to 4 i + 3 turn with those half a head further.
    let i = t % QUADS;
    let q_at = h * 2u * QUADS + i;
    var q_a = qkv[q_at];
    var q_b = qkv[q_at + QUADS];
    let cosines = rope[i];
    let sines = rope[i + QUADS];
#if STORES
    let k_at = (${N_HEADS}u + kv_head) * 2u * QUADS + i;
    let v_at = (${V_FIRST}u + kv_head) * 2u * QUADS + i;
    var k_a = qkv[k_at];
    var k_b = qkv[k_at + QUADS];
    let v_a = qkv[v_at];
    let v_b = qkv[v_at + QUADS];
    let k_norm = p.k_norm_at / 4u + i;
    let k_norm_a = vectors[k_norm];
    let k_norm_b = vectors[k_norm + QUADS];
#end
    let q_norm = p.q_norm_at / 4u + i;
    let q_norm_a = vectors[q_norm];
    let q_norm_b = vectors[q_norm + QUADS];
    let begin = p.low + group.z * p.piece;
    let limit = min(begin + p.piece, p.position + 1u);
    ask(begin, limit, kv_head, t);

    let counts = select(0.0, 1.0, t < QUADS);
#if STORES
    let squares = group_sums(counts * vec3<f32>(squares_of(q_a, q_b), squares_of(k_a, k_b), squares_of(v_a, v_b)), t);
    let factors = 1.0 / sqrt(squares / f32(HD) + p.eps);
    q_a *= factors.x * q_norm_a;
    q_b *= factors.x * q_norm_b;
    k_a *= factors.y * k_norm_a;
    k_b *= factors.y * k_norm_b;
#else
    let factor = 1.0 / sqrt(group_sum(counts * squares_of(q_a, q_b), t) / f32(HD) + p.eps);
    q_a *= factor * q_norm_a;
    q_b *= factor * q_norm_b;
#end
    if (t < QUADS) {
        q[i] = q_a * cosines - q_b * sines;
        q[i + QUADS] = q_b * cosines + q_a * sines;
#if STORES
        new_key[i] = k_a * cosines - k_b * sines;
        new_key[i + QUADS] = k_b * cosines + k_a * sines;
        new_value[i] = v_a * factors.z;
        new_value[i + QUADS] = v_b * factors.z;
#end
    }
    workgroupBarrier();
#if STORES
    if (limit == p.position + 1u && h % PER_KV == 0u && t < QUADS) {
        let at = ((p.position % p.capacity) * N_KV_HEADS + kv_head) * QUADS + t;
        keys[at] = packed(new_key[2u * t], new_key[2u * t + 1u]);
        values[at] = packed(new_value[2u * t], new_value[2u * t + 1u]);
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
                key${i} = packed(new_key[w], new_key[w + 1u]);
            }
#end
        }
        let column = 2u * (t % QUADS);
#for i ${STEPS}
        // Behind it too, where what the cache held before was asked for: no number must stay out even with a weight of 0.
        if (tile + t / QUADS + ${i}u * GROUPS >= p.position) {
            value${i} = packed(new_value[column], new_value[column + 1u]);
        }
#end
#end
        var score = 0.0;
#for i ${STEPS}
        {
            let w = 2u * (t % LANES + ${i}u * LANES);
            score += dot(q[w], vec4<f32>(unpack2x16float(key${i}.x), unpack2x16float(key${i}.y)))
                + dot(q[w + 1u], vec4<f32>(unpack2x16float(key${i}.z), unpack2x16float(key${i}.w)));
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
