// attend_many: softmax(q . k) v for many queries: a tile of TM * LM of them, and 4 * GROUPS * LN keys at a time.
//
// Each of LM * LN invocations holds TM by 4 * GROUPS scores in registers, and of the sums of values those of the same queries in
// 4 * COLUMNS dimensions. Both products bring a few columns at a time into workgroup memory, as `matmul` does: 16 dimensions of
// queries and keys, then weights and values of 4 * QUADS keys. What comes next is on its way while one multiplies.
//
// TOWER: every query sees all keys; group.y is the head. Else queries of a row and of the heads that share a key head (group.y) are
// neighbours, a query sees the keys of its window up to its own (LAST_KEY: up to another), and PIECES leaves the unnormalised sum,
// the largest score and the sum of weights over one piece of the keys (group.z), which `combine` joins. PADDED: heads are no
// multiple of 16 wide. HALVES: keys and values are halves.
#if TOWER
struct Params {
    n_queries: u32,
    n_keys: u32,
    row_vectors: u32, // of a row of q, k, v, out
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write q: array<vec4<f32>>
#bind write k: array<Stored>
#bind write v: array<Stored>
#bind write out: array<vec4<f32>>
#else
struct Params {
    n_heads: u32,
    n_kv_heads: u32,
    qkv_cols: u32,
    first_position: u32,
    n_rows: u32,
    window: u32, // 0: all
    capacity: u32,
    piece: u32, // keys in a piece
    n_pieces: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write q: array<vec4<f32>>
#bind write k: array<Stored>
#bind write v: array<Stored>
#bind write out: array<vec4<f32>>
#if PIECES
#bind write marks: array<vec2<f32>>
#end
#if LAST_KEY
#bind write last_key: array<i32>
#end
#end

const VECTORS = ${VECTORS}u; // of a head
const CHUNKS = ${CHUNKS}u;   // of 16 dimensions
const LM = ${LM}u;
const LN = ${LN}u;
const INVOCATIONS = LM * LN;
const KEYS = 4u * ${GROUPS}u * LN;
const PITCH = LM + 2u; // padded, so that writers of four vectors of a row hit different banks
// Queries, then weights: [rows LM apart][vector][row]. Keys as [one of four, of a group][vector][key], values as
// [key][stretch of LN vectors][vector], in between the largest scores as [four rows, LM apart][invocation].
var<workgroup> xs: array<array<array<vec4<f32>, PITCH>, 4>, ${TM}>;
var<workgroup> ys: array<array<vec4<f32>, LN>, ${ROOM}>;

#if HALVES
alias Stored = vec2<u32>;

fn numbers(w: Stored) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(w.x), unpack2x16float(w.y));
}
#else
alias Stored = vec4<f32>;

fn numbers(w: Stored) -> vec4<f32> {
    return w;
}
#end

#if TOWER
fn query_at(query: u32, head: u32) -> u32 {
    return min(query, p.n_queries - 1u) * p.row_vectors + head * VECTORS;
}

fn stored_at(key: u32, head: u32) -> u32 {
    return min(key, p.n_keys - 1u) * p.row_vectors + head * VECTORS;
}
#else
// Queries are counted row by row, the heads of one key head within it.
fn query_at(query: u32, kv_head: u32) -> u32 {
    let heads = p.n_heads / p.n_kv_heads;
    let row = min(query / heads, p.n_rows - 1u);
    return row * (p.qkv_cols / 4u) + (kv_head * heads + query % heads) * VECTORS;
}

fn stored_at(key: u32, kv_head: u32) -> u32 {
    return ((key % p.capacity) * p.n_kv_heads + kv_head) * VECTORS;
}
#end

// Vector i of a query that begins at `at`: zeros behind the head.
fn query_vector(at: u32, i: u32) -> vec4<f32> {
#if PADDED
    return select(vec4<f32>(0.0), q[at + min(i, VECTORS - 1u)], i < VECTORS);
#else
    return q[at + min(i, VECTORS - 1u)];
#end
}

@compute @workgroup_size(INVOCATIONS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let head = group.y;
    let first_query = group.x * (${TM}u * LM);
    // An invocation's queries are mr, mr + LM, ..., its keys 4 nr to 4 nr + 3, then 4 LN further.
    let mr = (t / 32u) / (LN / 8u) * 4u + (((t >> 3u) & 2u) | (t & 1u));
    let nr = (t / 32u) % (LN / 8u) * 8u + ((t >> 1u) & 7u);
#if TOWER
    let begin = 0u;
    let end = p.n_keys;
#else
    let heads = p.n_heads / p.n_kv_heads;
    let top_row = min(first_query / heads, p.n_rows - 1u);
    let bottom_row = min((first_query + ${TM}u * LM - 1u) / heads, p.n_rows - 1u);
    var begin = group.z * p.piece;
    if (p.window > 0u && p.first_position + top_row >= p.window) {
        begin += p.first_position + top_row - p.window + 1u;
    }
#if LAST_KEY
    let end = min(begin + p.piece, p.first_position + p.n_rows);
#else
    let end = min(begin + p.piece, p.first_position + bottom_row + 1u);
#end
    // The keys that each query sees: from low on, `span` more.
#for i TM
    let row${i} = min((first_query + ${i}u * LM + mr) / heads, p.n_rows - 1u);
    var low${i} = begin;
    if (p.window > 0u && p.first_position + row${i} >= p.window) {
        low${i} = max(low${i}, p.first_position + row${i} - p.window + 1u);
    }
#if LAST_KEY
    let behind${i} = min(u32(last_key[row${i}] + 1), end);
#else
    let behind${i} = min(p.first_position + row${i} + 1u, end);
#end
    let span${i} = behind${i} - min(low${i}, behind${i});
#end
#end
#for i TM
#for c COLUMNS
    var sum${i}_${c} = vec4<f32>(0.0);
#end
    var largest${i} = -1.0e30; // well above the score of what a query does not see
    var total${i} = 0.0;
#end
    // Its largest scores or totals, of four rows to a vector: what several invocations store must be whole vectors.
    var marks_of_rows: array<vec4<f32>, ${FOURS}>;
    // What it brings: vectors of queries, keys and values.
    let xj = t % 4u;
    let x_lane = (t / 4u) % LM;
    let x_at = t / (4u * LM);
#for e XV
    let query${e} = query_at(first_query + t / 4u + ${e}u * (INVOCATIONS / 4u), head);
    var x${e} = query_vector(query${e}, xj);
#end
#for e YV
    let key${e} = t / 4u + ${e}u * (INVOCATIONS / 4u);
    let key_at${e} = (key${e} / (4u * LN)) * 16u + (key${e} % 4u) * 4u + xj;
    let key_lane${e} = (key${e} / 4u) % LN;
    var stored${e} = stored_at(begin + key${e}, head);
    var y${e} = k[stored${e} + min(xj, VECTORS - 1u)];
#end
#for e VV
    let value${e} = (t + ${e}u * INVOCATIONS) / (LN * ${COLUMNS}u);
    let value_at${e} = (t + ${e}u * INVOCATIONS) / LN;
    let vector${e} = min((t + ${e}u * INVOCATIONS) % (LN * ${COLUMNS}u), VECTORS - 1u);
#end
    for (var first = begin; first < end; first += KEYS) {
#for i TM
#for g GROUPS
        var score${i}_${g} = vec4<f32>(0.0);
#end
#end
        for (var chunk = 0u; chunk < CHUNKS; chunk++) {
            workgroupBarrier();
#for e XV
            if (x_at + ${e}u * (INVOCATIONS / 4u / LM) < ${TM}u) {
                xs[x_at + ${e}u * (INVOCATIONS / 4u / LM)][xj][x_lane] = x${e};
            }
#end
#for e YV
            ys[key_at${e}][key_lane${e}] = numbers(y${e});
#end
            workgroupBarrier();
            let next = min(4u * (chunk + 1u) + xj, VECTORS - 1u);
#for e XV
            x${e} = query_vector(query${e}, 4u * (chunk + 1u) + xj);
#end
#for e YV
            y${e} = k[stored${e} + next];
#end
#for j 4
            {
#for g GROUPS
#for c 4
                let b${g}_${c} = ys[(${g} * 4 + ${c}) * 4 + ${j}][nr];
#end
#end
#for i TM
                {
                    let a = xs[${i}][${j}][mr];
#for g GROUPS
#for c 4
                    score${i}_${g}[${c}] = fma(a.w, b${g}_${c}.w, fma(a.z, b${g}_${c}.z,
                        fma(a.y, b${g}_${c}.y, fma(a.x, b${g}_${c}.x, score${i}_${g}[${c}]))));
#end
#end
                }
#end
            }
#end
        }
#for e VV
        var z${e} = v[stored_at(min(first + value${e}, end - 1u), head) + vector${e}];
#end
        workgroupBarrier();
#for g GROUPS
        let position${g} = first + ${g}u * 4u * LN + 4u * nr + vec4<u32>(0u, 1u, 2u, 3u);
#end
#for i TM
        {
            var top = -3.0e38;
#for g GROUPS
#if TOWER
            score${i}_${g} = select(score${i}_${g}, vec4<f32>(-3.0e38), position${g} >= vec4<u32>(end));
#else
            score${i}_${g} = select(score${i}_${g}, vec4<f32>(-3.0e38), position${g} - low${i} >= vec4<u32>(span${i}));
#end
            top = max(top, max(max(score${i}_${g}.x, score${i}_${g}.y), max(score${i}_${g}.z, score${i}_${g}.w)));
#end
            marks_of_rows[${i} / 4][${i} % 4] = top;
        }
#end
#for f FOURS
        ys[${f}u * LM + mr][nr] = marks_of_rows[${f}];
#end
        workgroupBarrier();
#for f FOURS
        for (var n = 0u; n < LN; n++) {
            marks_of_rows[${f}] = max(marks_of_rows[${f}], ys[${f}u * LM + mr][n]);
        }
#end
#for i TM
        {
            let top = max(largest${i}, marks_of_rows[${i} / 4][${i} % 4]);
            let fade = exp(largest${i} - top);
            largest${i} = top;
            total${i} *= fade;
#for g GROUPS
            score${i}_${g} = exp(score${i}_${g} - top);
            total${i} += (score${i}_${g}.x + score${i}_${g}.y) + (score${i}_${g}.z + score${i}_${g}.w);
#end
#for c COLUMNS
            sum${i}_${c} *= fade;
#end
        }
#end
        for (var chunk = 0u; chunk < LN * ${GROUPS}u / ${QUADS}u; chunk++) {
            workgroupBarrier();
#for g GROUPS
            if ((${g}u * LN + nr) / ${QUADS}u == chunk) {
#for i TM
                xs[${i}][nr % ${QUADS}u][mr] = score${i}_${g};
#end
            }
#end
#for e VV
            ys[value_at${e}][t % LN] = numbers(z${e});
#end
            workgroupBarrier();
#for e VV
            z${e} = v[stored_at(min(first + 4u * ${QUADS}u * (chunk + 1u) + value${e}, end - 1u), head) + vector${e}];
#end
#for j QUADS
            {
#for i TM
                let a${i} = xs[${i}][${j}][mr];
#end
#for m 4
#for c COLUMNS
                let b${m}_${c} = ys[(${j} * 4 + ${m}) * ${COLUMNS} + ${c}][nr];
#for i TM
                sum${i}_${c} = fma(vec4<f32>(a${i}[${m}]), b${m}_${c}, sum${i}_${c});
#end
#end
#end
            }
#end
        }
#for e XV
        x${e} = query_vector(query${e}, xj);
#end
#for e YV
        stored${e} = stored_at(first + KEYS + key${e}, head);
        y${e} = k[stored${e} + min(xj, VECTORS - 1u)];
#end
    }
    // The invocations of a row add up their totals.
    workgroupBarrier();
#for i TM
    marks_of_rows[${i} / 4][${i} % 4] = total${i};
#end
#for f FOURS
    ys[${f}u * LM + mr][nr] = marks_of_rows[${f}];
#end
    workgroupBarrier();
#for f FOURS
    marks_of_rows[${f}] = vec4<f32>(0.0);
    for (var n = 0u; n < LN; n++) {
        marks_of_rows[${f}] += ys[${f}u * LM + mr][n];
    }
#end
#for i TM
    {
        let total = marks_of_rows[${i} / 4][${i} % 4];
        let query = first_query + ${i}u * LM + mr;
#if TOWER
        let factor = 1.0 / total;
        let to = query * p.row_vectors + head * VECTORS;
        if (query < p.n_queries) {
#else
#if PIECES
        let factor = 1.0;
        let to = (((query / heads) * p.n_heads + head * heads + query % heads) * p.n_pieces + group.z);
        if (query < p.n_rows * heads && nr == 0u) {
            marks[to] = vec2<f32>(largest${i}, total);
        }
#else
        let factor = 1.0 / total;
        let to = (query / heads) * p.n_heads + head * heads + query % heads;
#end
        if (query < p.n_rows * heads) {
#end
#for c COLUMNS
            if (${c}u * LN + nr < VECTORS) {
#if TOWER
                out[to + ${c}u * LN + nr] = sum${i}_${c} * factor;
#else
                out[to * VECTORS + ${c}u * LN + nr] = sum${i}_${c} * factor;
#end
            }
#end
        }
    }
#end
}
