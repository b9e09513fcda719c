// attend: softmax(q . k) v for prepared queries. One workgroup of 128 for one row, HB query heads that share a key head, and one piece
// of the keys; tiles of 32 keys, four invocations share a key's scores. PIECES: the results are the unnormalised sum, the largest
// score and the sum of weights, which `combine` or the next product joins.
struct Params {
    n_heads: u32,
    n_kv_heads: u32,
    qkv_cols: u32,
    first_position: u32,
    n_rows: u32,
    window: u32, // 0: all
    capacity: u32,
    piece: u32, // keys in a piece, a multiple of 32
    n_pieces: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write qkv: array<vec4<f32>>
#if KV_F32
#bind write keys: array<vec4<f32>>
#bind write cached: array<vec2<f32>>
#else
#bind write keys: array<vec4<u32>>
#bind write cached: array<u32>
#end
#bind write out: array<vec2<f32>>
#if PIECES
#bind write marks: array<vec2<f32>>
#end
#if LAST_KEY
#bind write last_key: array<i32>
#end

const HD = ${HD}u;
const WORDS = HD / 2u; // pairs of elements
const HB = ${HB}u;
var<workgroup> q: array<vec4<f32>, HB * HD / 4u>;
var<workgroup> partial: array<f32, 128u * HB>;
var<workgroup> weights: array<f32, 32u * HB>; // [key][head]
var<workgroup> tops: array<f32, 4u * HB>;
var<workgroup> largest: array<f32, HB>;
var<workgroup> fades: array<f32, HB>;
var<workgroup> totals: array<f32, HB>;

fn value_pair(at: u32) -> vec2<f32> {
#if KV_F32
    return cached[at];
#else
    return unpack2x16float(cached[at]);
#end
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let first_head = group.x * HB;
    let row = group.y;
    let kv_head = first_head / (p.n_heads / p.n_kv_heads);
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
    for (var v = t; v < HB * HD / 4u; v += 128u) {
        q[v] = qkv[(row * p.qkv_cols + first_head * HD) / 4u + v];
    }
    if (t < HB) {
        largest[t] = -3.0e38;
        totals[t] = 0.0;
    }
#for b ${HB}
#for i ${OWN}
    var sum_${b}_${i} = vec2<f32>(0.0);
#end
#end
    workgroupBarrier();
    for (var tile = begin; tile < end; tile += 32u) {
        let key = tile + t / 4u;
#for b ${HB}
        var score${b} = 0.0;
#end
        if (key < end && key <= last) {
            let at = ((key % p.capacity) * p.n_kv_heads + kv_head) * (HD / 8u);
            for (var w = t % 4u; w < HD / 8u; w += 4u) {
#if KV_F32
                let k0 = keys[2u * (at + w)];
                let k1 = keys[2u * (at + w) + 1u];
#else
                let packed = keys[at + w];
                let k0 = vec4<f32>(unpack2x16float(packed.x), unpack2x16float(packed.y));
                let k1 = vec4<f32>(unpack2x16float(packed.z), unpack2x16float(packed.w));
#end
#for b ${HB}
                score${b} += dot(q[${b}u * (HD / 4u) + 2u * w], k0) + dot(q[${b}u * (HD / 4u) + 2u * w + 1u], k1);
#end
            }
        }
#for b ${HB}
        partial[t * HB + ${b}u] = score${b};
#end
        workgroupBarrier();
        for (var e = t; e < 32u * HB; e += 128u) {
            let i = e / HB;
            let b = e % HB;
            let s = partial[4u * i * HB + b] + partial[(4u * i + 1u) * HB + b] + partial[(4u * i + 2u) * HB + b]
                + partial[(4u * i + 3u) * HB + b];
            weights[e] = select(-3.0e38, s, tile + i < end && tile + i <= last);
        }
        workgroupBarrier();
        if (t < 4u * HB) {
            var top = -3.0e38;
            for (var i = 0u; i < 8u; i++) {
                top = max(top, weights[(8u * (t / HB) + i) * HB + t % HB]);
            }
            tops[t] = top;
        }
        workgroupBarrier();
        if (t < HB) {
            let top = max(max(largest[t], max(tops[t], tops[HB + t])), max(tops[2u * HB + t], tops[3u * HB + t]));
            fades[t] = exp(largest[t] - top);
            largest[t] = top;
        }
        workgroupBarrier();
        for (var e = t; e < 32u * HB; e += 128u) {
            let s = weights[e];
            weights[e] = select(exp(s - largest[e % HB]), 0.0, s <= -2.9e38);
        }
        workgroupBarrier();
        if (t < HB) {
            var gain = 0.0;
            for (var i = 0u; i < 32u; i++) {
                gain += weights[i * HB + t];
            }
            totals[t] = totals[t] * fades[t] + gain;
        }
#for b ${HB}
        let fade${b} = fades[${b}];
#for i ${OWN}
        sum_${b}_${i} *= fade${b};
#end
#end
        // Several values are asked for before the first is used. Behind the last key the weights are 0.
        let n = min(32u, end - tile);
        for (var first = 0u; first < n; first += 4u) {
#for j 4
            let at${j} = (((tile + min(first + ${j}u, n - 1u)) % p.capacity) * p.n_kv_heads + kv_head) * WORDS + t;
#for i ${OWN}
            var value_${j}_${i} = vec2<f32>(0.0);
            if (t + ${i}u * 128u < WORDS) {
                value_${j}_${i} = value_pair(at${j} + ${i}u * 128u);
            }
#end
#end
#for j 4
#for b ${HB}
            let weight_${j}_${b} = weights[(first + ${j}u) * HB + ${b}u];
#for i ${OWN}
            sum_${b}_${i} += weight_${j}_${b} * value_${j}_${i};
#end
#end
#end
        }
        workgroupBarrier();
    }
#for b ${HB}
    {
#if PIECES
        let at = (row * p.n_heads + first_head + ${b}u) * p.n_pieces + group.z;
        if (t == 0u) {
            marks[at] = vec2<f32>(largest[${b}], totals[${b}]);
        }
        let factor = 1.0;
#else
        let at = row * p.n_heads + first_head + ${b}u;
        let factor = 1.0 / totals[${b}];
#end
#for i ${OWN}
        if (t + ${i}u * 128u < WORDS) {
            out[at * WORDS + t + ${i}u * 128u] = sum_${b}_${i} * factor;
        }
#end
    }
#end
}
