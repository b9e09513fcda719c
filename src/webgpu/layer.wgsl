// layer: a whole decoder layer of one position in one dispatch (layer.c).
//
// The workgroups, all of them running at the same time, pass activations on through `exchange`, whose words are empty (0) at first:
// who needs a value reads its word until it is there. Words hold the complement of a value's bits, so no value looks empty. The
// exchange has two halves: a dispatch uses one and empties the other for the next. A wait is bounded: on a device that does not run
// the workgroups together the result is no number, but nothing hangs.
//
// Rows of a product are dealt out in turn: group number `t / LANES` of workgroup g makes the rows (t / LANES) * N + g, and so on.
// Weights are asked for before the values that they wait for.
struct Params {
    at: array<vec4<u32>, 3>, // first words of q k v o, gate up down, per-layer gate, per-layer projection
    now: u32,                // first words of the halves of `exchange`
    next: u32,
    n_words: u32,
    position: u32,
    low: u32, // first key that is seen
    capacity: u32,
    piece: u32, // keys in a piece, a multiple of 64
    n_pieces: u32,
    has_term: u32,
    term_norm_at: u32, // 0xffffffff: none
    scale_at: u32,     // likewise
    attn_norm_at: u32,
    q_norm_at: u32,
    k_norm_at: u32,
    post_attention_norm_at: u32,
    ffn_norm_at: u32,
    post_ffw_norm_at: u32,
    per_layer_at: u32,
    eps: f32,
    zero: u32, // added to bounds of loops, so that compilers leave them loops
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write x: array<f32>
#bind write term: array<f32>
#bind write exchange: array<atomic<u32>>
#bind read vectors: array<f32>
#bind write rope: array<f32>
#bind write keys: array<vec4<u32>>
#bind write values: array<u32>
#bind read weights: array<vec4<u32>>
#if PLE
#bind write per_layer: array<f32>
#end
#use w_common
#for k ${WEIGHTS}
const W${k} = vec4<u32>(${WORDS${k}}u, ${PLANE1_${k}}u, ${PLANE2_${k}}u, ${PLANE3_${k}}u);
#use ${TYPE${k}} K=${k} W=weights P=W${k}
#end
#use activation
#use reduce
#if INTEGER
#use integers
#end

const WG = ${WG}u;
const N = ${GROUPS}u;
const D = ${D}u;
const HD = ${HD}u;
const HEADS = ${HEADS}u;
const PER_KV = ${PER_KV}u; // query heads of a key head
const KV_HEADS = HEADS / PER_KV;
const QUERY_ROWS = HEADS * HD;
const KEY_ROWS = ${KEY_ROWS}u; // 0: the layer uses keys and values of another one
const QKV_ROWS = ${QKV_ROWS}u;
const FF = ${FF}u;
const MOST_PIECES = ${MOST_PIECES}u;

// The exchange: projections, pieces of attention, their marks (largest score, sum of weights), heads, the attention's term, gated
// values, the feed-forward's term, gated per-layer inputs.
const PIECES_AT = QKV_ROWS;
const MARKS_AT = PIECES_AT + MOST_PIECES * QUERY_ROWS;
const HEADS_AT = MARKS_AT + 2u * MOST_PIECES * HEADS;
const TERM_AT = HEADS_AT + QUERY_ROWS;
const GATED_AT = TERM_AT + D;
const DOWN_AT = GATED_AT + FF;
const INJECTED_AT = DOWN_AT + D;

const WORDS = HD / 2u; // pairs of elements, 16-bit words of the cache
const QUADS = HD / 8u;
const SHARE = WG / 64u; // invocations that share a key's score
const VALUE_GROUPS = WG / WORDS;

var<workgroup> xs: array<vec4<f32>, ${XS_VECTORS}>; // the input of a product, a vector of padding after every 16
var<workgroup> partial: array<f32, WG>;
var<workgroup> shares: array<vec2<f32>, WG>;
var<workgroup> raw: array<f32, HD>;
var<workgroup> query: array<vec2<f32>, WORDS>;
var<workgroup> fresh: array<vec2<f32>, WORDS>; // the new key
var<workgroup> scores: array<f32, 64>;
var<private> gave_up: bool = false;

fn slot(v: u32) -> u32 {
    return v + (v >> 4u);
}

fn pair_sum(a: vec4<f32>, b: vec4<f32>) -> f32 {
    return dot(a + b, vec4<f32>(1.0));
}

fn put(at: u32, value: f32) {
    let bits = bitcast<u32>(value);
    atomicStore(&exchange[p.now + at], ~select(bits, 0x7fffffffu, bits == 0xffffffffu));
}

fn value_of(word: u32) -> f32 {
    return bitcast<f32>(~word);
}

// Made of a parameter, since compilers refuse constants that are no numbers.
fn no_number() -> f32 {
    return bitcast<f32>(0x7fc00000u | p.zero);
}

fn set_input(i: u32, value: f32) {
    xs[slot(i / 4u)][i % 4u] = value;
}

// --- queries, keys and values

fn part_of(row: u32) -> u32 {
    return select(select(2u, 1u, row < QUERY_ROWS + KEY_ROWS), 0u, row < QUERY_ROWS);
}

fn slot_of_part(part: u32) -> u32 {
    return select(select(${SLOT0}u, ${SLOT1}u, part == 1u), ${SLOT2}u, part == 2u);
}

fn first_of_part(part: u32) -> u32 {
    return select(select(0u, QUERY_ROWS, part == 1u), QUERY_ROWS + KEY_ROWS, part == 2u);
}

// --- attention

fn rotated(i: u32) -> f32 {
    let half = HD / 2u;
    if (i < half) {
        return raw[i] * rope[i] - raw[i + half] * rope[half + i];
    }
    return raw[i] * rope[i - half] + raw[i - half] * rope[i];
}

// The pair t of a projected head.
fn projected(first: u32, t: u32) -> vec2<f32> {
    var a = 0u;
    var b = 0u;
    if (t < WORDS) {
#use layer_wait MISSING=(a==0u||b==0u)
            a = atomicLoad(&exchange[p.now + first + 2u * t]);
            b = atomicLoad(&exchange[p.now + first + 2u * t + 1u]);
#use layer_wait_end
        return vec2<f32>(value_of(a), value_of(b));
    }
    return vec2<f32>(0.0);
}

// The normed and rotated pair t of a head; all invocations must call.
fn prepared(first: u32, norm_at: u32, t: u32) -> vec2<f32> {
    var pair = projected(first, t);
    let factor = 1.0 / sqrt(group_sum(dot(pair, pair), t) / f32(HD) + p.eps);
    if (t < WORDS) {
        pair *= factor * vec2<f32>(vectors[norm_at + 2u * t], vectors[norm_at + 2u * t + 1u]);
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
    var place = base + i;
    while (place >= p.capacity) {
        place -= p.capacity;
    }
    return place * KV_HEADS + kv_head;
}

// One piece of the keys of one query head.
fn attend(h: u32, piece: u32, t: u32) {
    let kv_head = h / PER_KV;
    let begin = p.low + piece * p.piece;
    let limit = min(begin + p.piece, p.position + 1u);
    let own = prepared(h * HD, p.q_norm_at, t);
    if (t < WORDS) {
        query[t] = own;
    }
#if STORES
    let has_new = limit == p.position + 1u;
    let end = limit - select(0u, 1u, has_new); // keys from the cache
    var new_value = vec2<f32>(0.0);
    if (has_new) {
        workgroupBarrier();
        let key = prepared(QUERY_ROWS + kv_head * HD, p.k_norm_at, t);
        let pair = projected(${VALUES_FROM} + kv_head * HD, t);
        new_value = pair / sqrt(group_sum(dot(pair, pair), t) / f32(HD) + p.eps);
        if (t < WORDS) {
            let packed_key = pack2x16float(key);
            let packed_value = pack2x16float(new_value);
            fresh[t] = unpack2x16float(packed_key); // as others will read it
            new_value = unpack2x16float(packed_value);
            if (h % PER_KV == 0u) {
                let at = ((p.position % p.capacity) * KV_HEADS + kv_head) * WORDS + t;
                keys[at / 4u][at % 4u] = packed_key;
                values[at] = packed_value;
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
        let key = tile + t / SHARE;
        let base = tile % p.capacity;
        var score = 0.0;
        if (key < end) {
            let at = slot_of(base, t / SHARE, kv_head) * QUADS;
            for (var w = t % SHARE; w < QUADS; w += SHARE) {
                let k = keys[at + w];
                score += dot(query[4u * w], unpack2x16float(k.x)) + dot(query[4u * w + 1u], unpack2x16float(k.y))
                    + dot(query[4u * w + 2u], unpack2x16float(k.z)) + dot(query[4u * w + 3u], unpack2x16float(k.w));
            }
        }
#use layer_sum SUM=score LANES=SHARE LOG2=${SHARE_LOG2} LOG2_IS_SMALL=${SHARE_IS_SMALL}
        if (t % SHARE == 0u) {
            scores[t / SHARE] = select(-3.0e38, score, key < end);
        }
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
            let value${j} = values[slot_of(base, min(first + ${j}u * VALUE_GROUPS, n - 1u), kv_head) * WORDS + t % WORDS];
#end
#for j ${UNROLL}
            let weight${j} = select(0.0, scores[min(first + ${j}u * VALUE_GROUPS, 63u)], first + ${j}u * VALUE_GROUPS < n);
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
    for (var i = 0u; i < VALUE_GROUPS; i++) {
        sum += shares[i * WORDS + t % WORDS];
        total += partial[i * WORDS];
    }
#if STORES
    if (has_new) {
        var part = 0.0;
        if (t < WORDS) {
            part = dot(query[t], fresh[t]);
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
    if (p.n_pieces == 1u) {
        if (t < WORDS) {
            put(HEADS_AT + h * HD + 2u * t, sum.x / total);
            put(HEADS_AT + h * HD + 2u * t + 1u, sum.y / total);
        }
        return;
    }
    if (t < WORDS) {
        let at = PIECES_AT + (h * MOST_PIECES + piece) * HD + 2u * t;
        put(at, sum.x);
        put(at + 1u, sum.y);
    }
    if (t == 0u) {
        put(MARKS_AT + 2u * (h * MOST_PIECES + piece), largest);
        put(MARKS_AT + 2u * (h * MOST_PIECES + piece) + 1u, total);
    }
}

@compute @workgroup_size(${WG})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let g = group.x;

    // --- the stream is settled and normed; queries, keys and values
    let qkv_lane = t % ${QKV_LANES}u;
    let qkv_group = t / ${QKV_LANES}u;
#for s ${AHEAD}
#for k ${QKV_SLOTS}
    var qkv_${k}_${s}: Raw${k};
#end
#use layer_fetch_qkv INTO=${s} ITEM=${s}u
#end
#for i ${OWN}
    let i${i} = min(${i}u * WG + t, D - 1u);
    let here${i} = ${i}u * WG + t < D;
    var x${i} = select(0.0, x[i${i}], here${i});
    let norm_a${i} = vectors[p.attn_norm_at + i${i}];
#end
    let scale = select(1.0, vectors[p.scale_at], p.scale_at != 0xffffffffu);
    if (p.has_term != 0u) {
#for i ${OWN}
        let term${i} = select(0.0, term[i${i}], here${i});
#end
        if (p.term_norm_at != 0xffffffffu) {
            var squares = 0.0;
#for i ${OWN}
            squares += term${i} * term${i};
#end
            let factor = 1.0 / sqrt(group_sum(squares, t) / f32(D) + p.eps);
#for i ${OWN}
            x${i} += term${i} * factor * vectors[p.term_norm_at + i${i}];
#end
        } else {
#for i ${OWN}
            x${i} += term${i};
#end
        }
#for i ${OWN}
        x${i} *= scale;
#end
    }
#use layer_norm NORM=norm_a INT=${QKV_INT}
    {
        var sum = 0.0;
        var step = 0u;
        var row = qkv_group * N + g;
        for (var item = 0u; item < ${QKV_ITEMS}u + p.zero; item += ${AHEAD}u) {
#for s ${AHEAD}
            if (item + ${s}u < ${QKV_ITEMS}u) {
                let inside = step * ${QKV_LANES}u + qkv_lane;
                let chosen = slot_of_part(part_of(min(row, QKV_ROWS - 1u)));
#for k ${QKV_SLOTS}
                if (chosen == ${k}u) {
#use layer_dot K=${k} RAW=qkv_${k}_${s} SUM=sum UNITS=${D_UNITS} FIRST=0u INT=${QKV_INT}
                }
#end
#use layer_fetch_qkv INTO=${s} ITEM=item+${s}u+${AHEAD}u
                step++;
                if (step == ${QKV_STEPS}u) {
#use layer_sum SUM=sum LANES=${QKV_LANES}u LOG2=${QKV_LOG2} LOG2_IS_SMALL=${QKV_IS_SMALL}
                    if (qkv_lane == 0u && row < QKV_ROWS) {
                        put(row, sum);
                    }
                    sum = 0.0;
                    step = 0u;
                    row += ${QKV_GROUPS}u * N;
                }
            }
#end
        }
    }
    for (var i = g * WG + t; i < p.n_words; i += N * WG) {
        atomicStore(&exchange[p.next + i], 0u);
    }

    // --- attention
    workgroupBarrier(); // here and before other waits: a workgroup's own values are there
    for (var item = g; item < HEADS * p.n_pieces; item += N) {
        attend(item % HEADS, item / HEADS, t);
        workgroupBarrier();
    }
    if (p.n_pieces > 1u) {
        for (var first = 0u; first < QUERY_ROWS; first += WG / MOST_PIECES * N) {
            let o = first + t / MOST_PIECES * N + g;
            let piece = t % MOST_PIECES;
            var largest = -3.0e38;
            var total = 0.0;
            var sum = 0.0;
            if (o < QUERY_ROWS && piece < p.n_pieces) {
                let at = o / HD * MOST_PIECES + piece;
                var a = 0u;
                var b = 0u;
                var c = 0u;
#use layer_wait MISSING=(a==0u||b==0u||c==0u)
                    a = atomicLoad(&exchange[p.now + MARKS_AT + 2u * at]);
                    b = atomicLoad(&exchange[p.now + MARKS_AT + 2u * at + 1u]);
                    c = atomicLoad(&exchange[p.now + PIECES_AT + at * HD + o % HD]);
#use layer_wait_end
                largest = value_of(a);
                total = value_of(b);
                sum = value_of(c);
            }
            shares[t] = vec2<f32>(largest, total);
            partial[t] = sum;
            workgroupBarrier();
            if (piece == 0u && o < QUERY_ROWS) {
                var top = largest;
                for (var i = 1u; i < p.n_pieces; i++) {
                    top = max(top, shares[t + i].x);
                }
                sum = 0.0;
                total = 0.0;
                for (var i = 0u; i < p.n_pieces; i++) {
                    let weight = exp(shares[t + i].x - top);
                    total += shares[t + i].y * weight;
                    sum += partial[t + i] * weight;
                }
                put(HEADS_AT + o, sum / total);
            }
            workgroupBarrier();
        }
    }
#use layer_product NAME=o K=${O} K_AT=0 K_IN=3 FROM=HEADS_AT INPUTS=${O_INPUTS} INTO_AT=TERM_AT TO_TERM=0 LANES=${O_LANES} LOG2=${O_LOG2} LOG2_IS_SMALL=${O_IS_SMALL} GROUPS=${O_GROUPS} CHUNKS=${O_CHUNKS} CHUNKS_STEPS=${O_ROW_ITEMS} ITEMS=${O_ITEMS} INT=${O_INT} CHUNK=${O_CHUNK} STEPS=${O_STEPS} TAKES=${O_TAKES} UNITS=${O_UNITS} ROWS=D

    // --- gate and up
    let ff_lane = t % ${FF_LANES}u;
    let ff_group = t / ${FF_LANES}u;
#for s ${AHEAD}
#use layer_fetch NAME=gate K=${GATE} AT=p.at[1].x GROUP=ff ROWS=FF LANES=${FF_LANES} STEPS=${FF_STEPS} GROUPS=${FF_GROUPS} UNITS=${D_UNITS} INTO=${s} ITEM=${s}u VAR=var
#use layer_fetch NAME=up K=${UP} AT=p.at[1].y GROUP=ff ROWS=FF LANES=${FF_LANES} STEPS=${FF_STEPS} GROUPS=${FF_GROUPS} UNITS=${D_UNITS} INTO=${s} ITEM=${s}u VAR=var
#end
#for i ${OWN}
    let norm_f${i} = vectors[p.ffn_norm_at + i${i}];
#end
#use layer_settle NAME=s FROM=TERM_AT NORM_AT=p.post_attention_norm_at
#use layer_norm NORM=norm_f INT=${FF_INT}
    {
        var gate = 0.0;
        var up = 0.0;
        var step = 0u;
        var row = ff_group * N + g;
        for (var item = 0u; item < ${FF_ITEMS}u + p.zero; item += ${AHEAD}u) {
#for s ${AHEAD}
            if (item + ${s}u < ${FF_ITEMS}u) {
                let inside = step * ${FF_LANES}u + ff_lane;
#use layer_dot K=${GATE} RAW=gate${s} SUM=gate UNITS=${D_UNITS} FIRST=0u INT=${FF_INT}
#use layer_dot K=${UP} RAW=up${s} SUM=up UNITS=${D_UNITS} FIRST=0u INT=${FF_INT}
#use layer_fetch NAME=gate K=${GATE} AT=p.at[1].x GROUP=ff ROWS=FF LANES=${FF_LANES} STEPS=${FF_STEPS} GROUPS=${FF_GROUPS} UNITS=${D_UNITS} INTO=${s} ITEM=item+${s}u+${AHEAD}u VAR=
#use layer_fetch NAME=up K=${UP} AT=p.at[1].y GROUP=ff ROWS=FF LANES=${FF_LANES} STEPS=${FF_STEPS} GROUPS=${FF_GROUPS} UNITS=${D_UNITS} INTO=${s} ITEM=item+${s}u+${AHEAD}u VAR=
                step++;
                if (step == ${FF_STEPS}u) {
#use layer_sum SUM=gate LANES=${FF_LANES}u LOG2=${FF_LOG2} LOG2_IS_SMALL=${FF_IS_SMALL}
#use layer_sum SUM=up LANES=${FF_LANES}u LOG2=${FF_LOG2} LOG2_IS_SMALL=${FF_IS_SMALL}
                    if (ff_lane == 0u && row < FF) {
                        put(GATED_AT + row, activate(gate) * up);
                    }
                    gate = 0.0;
                    up = 0.0;
                    step = 0u;
                    row += ${FF_GROUPS}u * N;
                }
            }
#end
        }
    }

    // --- down
#use layer_product NAME=down K=${DOWN} K_AT=1 K_IN=2 FROM=GATED_AT INPUTS=${FF} INTO_AT=DOWN_AT TO_TERM=${DOWN_TO_TERM} LANES=${DOWN_LANES} LOG2=${DOWN_LOG2} LOG2_IS_SMALL=${DOWN_IS_SMALL} GROUPS=${DOWN_GROUPS} CHUNKS=${DOWN_CHUNKS} CHUNKS_STEPS=${DOWN_ROW_ITEMS} ITEMS=${DOWN_ITEMS} INT=${DOWN_INT} CHUNK=${DOWN_CHUNK} STEPS=${DOWN_STEPS} TAKES=${DOWN_TAKES} UNITS=${DOWN_UNITS} ROWS=D
#if PLE

    // --- per-layer inputs
    let gin_lane = t % ${IN_LANES}u;
    let gin_group = t / ${IN_LANES}u;
#for s ${AHEAD}
#use layer_fetch NAME=gin K=${IN} AT=p.at[1].w GROUP=gin ROWS=${WIDTH}u LANES=${IN_LANES} STEPS=${IN_STEPS} GROUPS=${IN_GROUPS} UNITS=${D_UNITS} INTO=${s} ITEM=${s}u VAR=var
#end
#use layer_settle NAME=d FROM=DOWN_AT NORM_AT=p.post_ffw_norm_at
#for i ${OWN}
    if (here${i}) {
        set_input(i${i}, x${i});
    }
#end
    workgroupBarrier();
#if IN_INT
    make_integers(D / 8u, t);
#end
    {
        var sum = 0.0;
        var step = 0u;
        var row = gin_group * N + g;
        for (var item = 0u; item < ${IN_ITEMS}u + p.zero; item += ${AHEAD}u) {
#for s ${AHEAD}
            if (item + ${s}u < ${IN_ITEMS}u) {
                let inside = step * ${IN_LANES}u + gin_lane;
#use layer_dot K=${IN} RAW=gin${s} SUM=sum UNITS=${D_UNITS} FIRST=0u INT=${IN_INT}
#use layer_fetch NAME=gin K=${IN} AT=p.at[1].w GROUP=gin ROWS=${WIDTH}u LANES=${IN_LANES} STEPS=${IN_STEPS} GROUPS=${IN_GROUPS} UNITS=${D_UNITS} INTO=${s} ITEM=item+${s}u+${AHEAD}u VAR=
                step++;
                if (step == ${IN_STEPS}u) {
#use layer_sum SUM=sum LANES=${IN_LANES}u LOG2=${IN_LOG2} LOG2_IS_SMALL=${IN_IS_SMALL}
                    if (gin_lane == 0u && row < ${WIDTH}u) {
                        put(INJECTED_AT + row, gelu_tanh(sum) * per_layer[p.per_layer_at + row]);
                    }
                    sum = 0.0;
                    step = 0u;
                    row += ${IN_GROUPS}u * N;
                }
            }
#end
        }
    }
#use layer_product NAME=proj K=${PROJ} K_AT=2 K_IN=0 FROM=INJECTED_AT INPUTS=${WIDTH} INTO_AT=0u TO_TERM=1 LANES=${PROJ_LANES} LOG2=${PROJ_LOG2} LOG2_IS_SMALL=${PROJ_IS_SMALL} GROUPS=${PROJ_GROUPS} CHUNKS=${PROJ_CHUNKS} CHUNKS_STEPS=${PROJ_ROW_ITEMS} ITEMS=${PROJ_ITEMS} INT=${PROJ_INT} CHUNK=${PROJ_CHUNK} STEPS=${PROJ_STEPS} TAKES=${PROJ_TAKES} UNITS=${PROJ_UNITS} ROWS=D
#end
    // Nobody reads x or term any more: every workgroup has passed on what it made of them.
    if (g == 0u) {
#for i ${OWN}
        if (here${i}) {
            x[i${i}] = select(x${i}, no_number(), gave_up);
        }
#end
    }
}
