// matvec: products of weights with few rows of activations, and what is fused around them.
//
// A workgroup of WG invocations makes WG / LANES * R rows of one part (the parts are weights whose results stand side by side): LANES
// neighbours share R rows, each takes every LANES-th unit of 32 weights. The input is staged in workgroup memory, CHUNK units at a
// time, with one vector of padding after every 16 so that neighbours hit different banks; INTEGER: as integers (integers.wgsl), and units
// are pairs. PRELOAD: an invocation asks for all of its weights before anything else, so that waiting for them and making the input
// overlap.
//
// A workgroup goes on with the tile of rows that is groups_x further, so that it makes its input for several tiles.
//
// FUSED: the input is the stream x, settled and normed by every workgroup for itself; the first one also writes the settled value to
// `spare`. APART: the weights of both norms are bound by themselves, so that they are asked for before the parameters have come. COMBINE: the input are the pieces that attention left, joined here. GATED: parts 0 and 1 are gate and up,
// out = activation(gate) * up. SPLIT: the workgroups of group.y take SPLIT_UNITS of the columns each and leave sums, which the stream
// adds when it takes them as its term: one and MORE_SPLITS more.
struct Params {
    w0: vec4<u32>, // per weight: 16-byte words of a row, starts of its planes
    w1: vec4<u32>,
    w2: vec4<u32>,
    n_rows: u32,
    n_in: u32,
    n_units: u32,
    out_cols: u32,
    out_first: u32, // column of the first result
    term_norm_at: u32,
    norm_at: u32,
    bias_at: u32,
    other_cols: u32,  // of per_layer
    other_first: u32, // first column in it
    scale: f32, // of the settled stream
    eps: f32,
    cap: f32,
    in_min: f32,
    in_max: f32,
    out_min: f32,
    out_max: f32,
    n_pieces: u32,
    head_vectors: u32, // COMBINE: vectors of 4 elements in a head
    groups_x: u32,
    n_tiles: u32, // of a dispatch
}
@group(0) @binding(0) var<uniform> p: Params;
#if ODD
#bind write x: array<f32>
#else
#bind write x: array<vec4<f32>>
#end
#if COMBINE
#bind write marks: array<vec2<f32>>
#end
#if TERM
#bind write term: array<vec4<f32>>
#end
#if SETTLES
#bind write spare: array<vec4<f32>>
#end
#if APART
#bind read term_norm: array<vec4<f32>>
#bind read norm: array<vec4<f32>>
#end
#if VECTORS
#bind read vectors: array<vec4<f32>>
#end
#if PER_LAYER
#bind write per_layer: array<f32>
#end
#bind write out: array<f32>
#for k ${PARTS}
#bind read w${k}: array<vec4<u32>>
#end
#use w_common
// What does not change from layer to layer is constant, so that weights are asked for before the parameters are there.
#if STATIC
const N_IN = ${N_IN}u;
const N_UNITS = ${N_UNITS}u;
#for k ${PARTS}
const ROWS${k} = ${ROWS${k}}u;
const W${k} = vec4<u32>(${WORDS${k}}u, ${PLANE1_${k}}u, ${PLANE2_${k}}u, ${PLANE3_${k}}u);
#use ${TYPE${k}} K=${k} W=w${k} P=W${k}
#end
#else
#for k ${PARTS}
#use ${TYPE${k}} K=${k} W=w${k} P=p.w${k}
#end
#end
#use activation
#use reduce
#if INTEGER
#use integers WG=${WG}
#else
#use floats
#end

const LANES = ${LANES}u;
const GROUPS = ${WG}u / LANES;
#if CROSS
var<workgroup> sums: array<f32, ${SUMS}>;
#end

// The first column of a workgroup, in units.
fn first_unit(split: u32) -> u32 {
#if SPLIT
    return split * ${SPLIT_UNITS}u;
#else
    return 0u;
#end
}

#if FUSED
// The settled, normed stream becomes the input of the product.
fn stage(t: u32, batch_row: u32, chunk: u32, writes: bool) {
    let n = ${N_IN_OF} / 4u;
    let at = batch_row * n;
#for r ${ROUNDS}
    let i${r} = ${r}u * ${WG}u + t;
    let here${r} = i${r} < n;
    var v${r} = vec4<f32>(0.0);
#if TERM
    var term${r} = vec4<f32>(0.0);
#end
#if TERM_NORM
    var scale${r} = vec4<f32>(0.0);
#end
#if NORM
    var norm${r} = vec4<f32>(0.0);
#end
    if (here${r}) {
        v${r} = x[at + i${r}];
#if TERM
        term${r} = term[at + i${r}];
#for s ${MORE_SPLITS}
        term${r} += term[(${s}u + 1u) * n + at + i${r}];
#end
#end
#if TERM_NORM
#if APART
        scale${r} = term_norm[i${r}];
#else
        scale${r} = vectors[p.term_norm_at + i${r}];
#end
#end
#if NORM
#if APART
        norm${r} = norm[i${r}];
#else
        norm${r} = vectors[p.norm_at + i${r}];
#end
#end
    }
#end
#if TERM
#if TERM_NORM
    var squares = 0.0;
#for r ${ROUNDS}
    squares += dot(term${r}, term${r});
#end
    let factor = 1.0 / sqrt(group_sum(squares, t) / f32(${N_IN_OF}) + p.eps);
#for r ${ROUNDS}
    v${r} += term${r} * factor * scale${r};
#end
#else
#for r ${ROUNDS}
    v${r} += term${r};
#end
#end
#if SCALE
#for r ${ROUNDS}
    v${r} *= p.scale;
#end
#end
    if (writes) {
#for r ${ROUNDS}
        if (here${r}) {
            spare[at + i${r}] = v${r};
        }
#end
    }
#end
#if NORM
    var own_squares = 0.0;
#for r ${ROUNDS}
    own_squares += dot(v${r}, v${r});
#end
    let own = 1.0 / sqrt(group_sum(own_squares, t) / f32(${N_IN_OF}) + p.eps);
#for r ${ROUNDS}
    v${r} *= own * norm${r};
#end
#end
#for r ${ROUNDS}
#if INTEGER
    make_vector(i${r}, t, i${r} < ${STAGED}u, v${r});
#else
    if (i${r} < ${STAGED}u) {
        xs[slot(i${r})] = v${r};
    }
#end
#end
    workgroupBarrier();
}
#else
fn input_vector(at: u32, v: u32) -> vec4<f32> {
    var r = vec4<f32>(0.0);
#if COMBINE
    if (4u * v < ${N_IN_OF}) {
        let head = v / p.head_vectors;
        let inside = v % p.head_vectors;
        // All are asked for at once; those behind the last piece count nothing.
        let first = head * p.n_pieces;
        var top = -3.0e38;
#for s ${MOST_JOINED}
        let place${s} = first + min(${s}u, p.n_pieces - 1u);
        let mark${s} = marks[place${s}];
        let piece${s} = x[place${s} * p.head_vectors + inside];
        top = max(top, mark${s}.x);
#end
        var total = 0.0;
#for s ${MOST_JOINED}
        let weight${s} = select(0.0, exp(mark${s}.x - top), ${s}u < p.n_pieces);
        total += mark${s}.y * weight${s};
        r += piece${s} * weight${s};
#end
        r = r / total;
    }
#else
#if ODD
    for (var c = 0u; c < 4u; c++) {
        if (4u * v + c < ${N_IN_OF}) {
            r[c] = x[at + 4u * v + c];
        }
    }
#else
    if (4u * v < ${N_IN_OF}) {
        r = x[at / 4u + v];
    }
#end
#end
#if CLIP
    return clamp(r, vec4<f32>(p.in_min), vec4<f32>(p.in_max));
#else
    return r;
#end
}

// Vector v of the columns that a workgroup takes; those of the next one are 0 here.
fn own_vector(row: u32, split: u32, v: u32) -> vec4<f32> {
#if SPLIT
    if (v >= ${SPLIT_UNITS}u * ${UNIT_VECTORS}u) {
        return vec4<f32>(0.0);
    }
#end
    return input_vector(row, first_unit(split) * ${UNIT_VECTORS}u + v);
}

// A chunk of the input is staged.
fn stage(t: u32, batch_row: u32, chunk: u32, writes: bool) {
#if MANY_CHUNKS
    workgroupBarrier();
#end
    let row = select(batch_row * ${N_IN_OF}, 0u, ${SPLIT} == 1);
    let origin = chunk * ${CHUNK}u * ${UNIT_VECTORS}u;
#if INTEGER
#if SHUFFLES_VECTORS
#for r ${ROUNDS}
    let v${r} = ${r}u * ${WG}u + t;
    make_vector(v${r}, t, v${r} < ${STAGED}u, own_vector(row, batch_row, origin + v${r}));
#end
#else
    // Not unrolled: compilers need long for that many barriers.
    for (var first = 0u; first < ${STAGED}u; first += ${WG}u) {
        let v = first + t;
        make_vector(v, t, v < ${STAGED}u, own_vector(row, batch_row, origin + v));
    }
#end
#else
    for (var v = t; v < ${STAGED}u; v += ${WG}u) {
        xs[slot(v)] = own_vector(row, batch_row, origin + v);
    }
#end
    workgroupBarrier();
}
#end

// What becomes of a sum.
fn finished(sum: f32, gate: f32, o: u32, batch_row: u32) -> f32 {
    var y = sum;
#if GATED
    y = activate(y) * gate;
#end
#if BIAS
    y += vectors[(p.bias_at + o) / 4u][(p.bias_at + o) % 4u];
#end
#if CLIP
    y = clamp(y, p.out_min, p.out_max);
#end
#if CAP
    y = p.cap * bounded_tanh(y / p.cap);
#end
#if PER_LAYER
    y = gelu_tanh(y) * per_layer[batch_row * p.other_cols + p.other_first + o];
#end
    return y;
}

@compute @workgroup_size(${WG})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let lane = t % LANES;
    let batch_row = group.y;
    let start = first_unit(group.y);
    var tile = group.x;
    var part = 0u;
#if SPLIT
    var out_at = group.y * ${ROWS_OF};
#else
    var out_at = batch_row * p.out_cols + p.out_first;
#end
#if MANY_PARTS
    // One tile for each workgroup: its part is found here.
#for k ${MORE_PARTS}
    let tiles${k} = (ROWS${k} + GROUPS * ${R}u - 1u) / (GROUPS * ${R}u);
    if (part == ${k}u && tile >= tiles${k}) {
        tile -= tiles${k};
        part = ${k}u + 1u;
        out_at += ROWS${k};
    }
#end
#end
#for k ${RUNS}
    if (part == ${k}u) {
#if STATIC
        let n_rows = ROWS${k};
#else
        let n_rows = p.n_rows;
#end
        var first = (tile * GROUPS + t / LANES) * ${R}u;
#if PRELOAD
#for r ${R}
        var row${r} = min(first + ${r}u, n_rows - 1u);
#end
#for c ${CHUNKS}
#for s ${STEPS}
        let u_${c}_${s} = min(start + ${c}u * ${CHUNK}u + ${s}u * LANES + lane, ${N_UNITS_OF} - 1u);
#for r ${R}
        var w_${c}_${s}_${r} = ${FETCH}${k}(row${r} * ${W_OF}${k}.x, u_${c}_${s});
#if GATED
        var g_${c}_${s}_${r} = ${FETCH}1(row${r} * ${W_OF}1.x, u_${c}_${s});
#end
#end
#end
#end
#end
#if !MANY_CHUNKS
        stage(t, batch_row, 0u, group.x == 0u);
#end
        for (; tile < p.n_tiles; tile += p.groups_x) {
        first = (tile * GROUPS + t / LANES) * ${R}u;
#for r ${R}
        var a${r} = 0.0;
#if GATED
        var b${r} = 0.0;
#end
#end
#if PRELOAD
#for c ${CHUNKS}
#if MANY_CHUNKS
        stage(t, batch_row, ${c}u, false);
#end
#for s ${STEPS}
        {
            let inside = ${s}u * LANES + lane;
#use matvec_input K=${k}
#for r ${R}
            a${r} += ${DOT}${k}(w_${c}_${s}_${r}, u_${c}_${s}, ${INPUT});
#if GATED
            b${r} += ${DOT}1(g_${c}_${s}_${r}, u_${c}_${s}, ${INPUT});
#end
#end
        }
#end
#end
#if !MANY_PARTS
        // The next tile's weights, while this one's sums come together.
        if (tile + p.groups_x < p.n_tiles) {
            let next = ((tile + p.groups_x) * GROUPS + t / LANES) * ${R}u;
#for r ${R}
            row${r} = min(next + ${r}u, n_rows - 1u);
#end
#for c ${CHUNKS}
#for s ${STEPS}
#for r ${R}
            w_${c}_${s}_${r} = ${FETCH}${k}(row${r} * ${W_OF}${k}.x, u_${c}_${s});
#if GATED
            g_${c}_${s}_${r} = ${FETCH}1(row${r} * ${W_OF}1.x, u_${c}_${s});
#end
#end
#end
#end
        }
#end
#else
        for (var c = 0u; c * ${CHUNK}u < ${N_UNITS_OF}; c++) {
#if MANY_CHUNKS
            stage(t, batch_row, c, false);
#end
            for (var inside = lane; inside < ${CHUNK}u; inside += LANES) {
                let u = min(c * ${CHUNK}u + inside, ${N_UNITS_OF} - 1u);
#use matvec_input K=${k}
#for r ${R}
                a${r} += ${DOT}${k}(${FETCH}${k}(min(first + ${r}u, n_rows - 1u) * ${W_OF}${k}.x, u), u, ${INPUT});
#if GATED
                b${r} += ${DOT}1(${FETCH}1(min(first + ${r}u, n_rows - 1u) * ${W_OF}1.x, u), u, ${INPUT});
#end
#end
            }
        }
#end
#if SUBGROUPS
#for i ${SHUFFLES}
#for r ${R}
        a${r} += subgroupShuffleXor(a${r}, 1u << ${i}u);
#if GATED
        b${r} += subgroupShuffleXor(b${r}, 1u << ${i}u);
#end
#end
#end
#end
#if CROSS
        // The lanes of a row are spread over several stretches of STRETCH that have their sums already.
        workgroupBarrier();
        if (lane % ${STRETCH}u == 0u) {
#for r ${R}
            sums[(t / ${STRETCH}u) * ${TOTALS}u + ${r}u] = a${r};
#if GATED
            sums[(t / ${STRETCH}u) * ${TOTALS}u + ${R}u + ${r}u] = b${r};
#end
#end
        }
        workgroupBarrier();
#end
        let o = first + lane;
        if (lane < ${R}u && o < n_rows) {
            var gate = 0.0;
#if CROSS
            var y = 0.0;
            for (var i = 0u; i < LANES / ${STRETCH}u; i++) {
                y += sums[((t - lane) / ${STRETCH}u + i) * ${TOTALS}u + lane];
#if GATED
                gate += sums[((t - lane) / ${STRETCH}u + i) * ${TOTALS}u + ${R}u + lane];
#end
            }
#else
            var y = a0;
#if GATED
            gate = b0;
#end
#for r ${R}
            if (lane == ${r}u) {
                y = a${r};
#if GATED
                gate = b${r};
#end
            }
#end
#end
            out[out_at + o] = finished(y, gate, o, batch_row);
        }
        }
    }
#end
}
