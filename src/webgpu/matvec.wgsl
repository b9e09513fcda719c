// matvec: products of weights with few rows of activations, and what is fused around them.
//
// A workgroup of WG invocations makes WG / LANES * R rows of one part (the parts are weights whose results stand side by side): LANES
// neighbours share R rows, each takes every LANES-th unit of 32 weights. The input is staged in workgroup memory, in pieces of CHUNK
// units, with one vector of padding after every 16 so that neighbours hit different banks.
//
// FUSED: the input is the stream x (all in one chunk, XS units), settled and normed by every workgroup for itself; the first one
// also writes the settled value to `spare`.
// GATED: parts 0 and 1 are gate and up, out = activation(gate) * up.
struct Params {
    w0: vec4<u32>, // per weight: 16-byte words of a row, starts of its planes
    w1: vec4<u32>,
    w2: vec4<u32>,
    n_rows: vec4<u32>, // of each part
    n_in: u32,
    n_units: u32,
    x_cols: u32,
    out_cols: u32,
    out_first: u32, // column of the first result
    term_norm_at: u32,
    norm_at: u32,
    scale_at: u32,
    bias_at: u32,
    other_cols: u32,  // of per_layer
    other_first: u32, // first column in it
    eps: f32,
    cap: f32,
    in_min: f32,
    in_max: f32,
    out_min: f32,
    out_max: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
#if ODD
#bind write x: array<f32>
#else
#bind write x: array<vec4<f32>>
#end
#if TERM
#bind write term: array<vec4<f32>>
#end
#if SETTLES
#bind write spare: array<vec4<f32>>
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
#for k ${PARTS}
#use ${TYPE${k}} K=${k}
#end
#use activation
#use reduce

const LANES = ${LANES}u;
const GROUPS = ${WG}u / LANES;
var<workgroup> xs: array<vec4<f32>, ${XS_VECTORS}>;
var<workgroup> sums: array<f32, ${SUMS}>;

fn slot(v: u32) -> u32 {
    return v + (v >> 4u);
}

#if FUSED
// The normed stream into xs.
fn stage(t: u32, row: u32, writes: bool) {
    let n = p.n_in / 4u;
    let at = row * n;
    var squares = 0.0;
#if TERM_NORM
    for (var i = t; i < n; i += ${WG}u) {
        let v = term[at + i];
        squares += dot(v, v);
    }
    let factor = 1.0 / sqrt(group_sum(squares, t) / f32(p.n_in) + p.eps);
    squares = 0.0;
#end
    for (var i = t; i < n; i += ${WG}u) {
        var v = x[at + i];
#if TERM
#if TERM_NORM
        v += term[at + i] * factor * vectors[p.term_norm_at + i];
#else
        v += term[at + i];
#end
#end
#if SCALE
        v *= vectors[p.scale_at].x;
#end
#if SETTLES
        if (writes) {
            spare[at + i] = v;
        }
#end
        xs[slot(i)] = v;
        squares += dot(v, v);
    }
#if NORM
    let own = 1.0 / sqrt(group_sum(squares, t) / f32(p.n_in) + p.eps);
    for (var i = t; i < n; i += ${WG}u) {
        xs[slot(i)] = xs[slot(i)] * own * vectors[p.norm_at + i];
    }
#end
    workgroupBarrier();
}
#else
fn input_vector(at: u32, v: u32) -> vec4<f32> {
#if ODD
    var r = vec4<f32>(0.0);
    for (var c = 0u; c < 4u; c++) {
        if (4u * v + c < p.n_in) {
            r[c] = x[at + 4u * v + c];
        }
    }
#else
    var r = vec4<f32>(0.0);
    if (4u * v < p.n_in) {
        r = x[at / 4u + v];
    }
#end
#if CLIP
    return clamp(r, vec4<f32>(p.in_min), vec4<f32>(p.in_max));
#else
    return r;
#end
}
#end

@compute @workgroup_size(${WG})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let lane = t % LANES;
    let batch_row = group.y;
    var tile = group.x;
    var part = 0u;
    var out_at = batch_row * p.out_cols + p.out_first;
#if !GATED
#if MANY_PARTS
    for (var k = 0u; k < ${PARTS}u - 1u; k++) {
        let tiles = (p.n_rows[k] + GROUPS * ${R}u - 1u) / (GROUPS * ${R}u);
        if (part == k && tile >= tiles) {
            tile -= tiles;
            part = k + 1u;
            out_at += p.n_rows[k];
        }
    }
#end
#end
    let n_rows = p.n_rows[part];
    let first = (tile * GROUPS + t / LANES) * ${R}u;
#for r ${R}
    var a${r} = 0.0;
    let row${r} = min(first + ${r}u, n_rows - 1u);
#if GATED
    var b${r} = 0.0;
#end
#end
#if FUSED
    stage(t, batch_row, group.x == 0u);
    let first_unit = 0u;
    let n_units = p.n_units;
#else
    for (var first_unit = 0u; first_unit < p.n_units; first_unit += ${CHUNK}u) {
    workgroupBarrier();
    for (var v = t; v < ${CHUNK}u * 8u; v += ${WG}u) {
        xs[slot(v)] = input_vector(batch_row * p.x_cols, first_unit * 8u + v);
    }
    workgroupBarrier();
    let n_units = min(p.n_units - first_unit, ${CHUNK}u);
#end
#for k ${RUNS}
    if (part == ${k}u) {
        for (var u = lane; u < n_units; u += LANES) {
#for j 8
            let x${j} = xs[slot(xi${k}(u, ${j}u))];
#end
#for r ${R}
            {
                let v = values${k}(row${r} * p.w${k}.x, first_unit + u);
                a${r} += dot(v[0], x0) + dot(v[1], x1) + dot(v[2], x2) + dot(v[3], x3)
                    + dot(v[4], x4) + dot(v[5], x5) + dot(v[6], x6) + dot(v[7], x7);
            }
#if GATED
            {
                let v = values1(row${r} * p.w1.x, first_unit + u);
                b${r} += dot(v[0], x0) + dot(v[1], x1) + dot(v[2], x2) + dot(v[3], x3)
                    + dot(v[4], x4) + dot(v[5], x5) + dot(v[6], x6) + dot(v[7], x7);
            }
#end
#end
        }
    }
#end
#if !FUSED
    }
#end
#for r ${R}
    sums[t * ${TOTALS}u + ${r}u] = a${r};
#if GATED
    sums[t * ${TOTALS}u + ${R}u + ${r}u] = b${r};
#end
#end
    workgroupBarrier();
    for (var s = LANES / 2u; s > 0u; s = s >> 1u) {
        if (lane < s) {
#for r ${TOTALS}
            sums[t * ${TOTALS}u + ${r}u] += sums[(t + s) * ${TOTALS}u + ${r}u];
#end
        }
        workgroupBarrier();
    }
    for (var r = lane; r < ${R}u; r += LANES) {
        let o = first + r;
        if (o >= n_rows) {
            break;
        }
        var y = sums[(t - lane) * ${TOTALS}u + r];
#if GATED
        y = activate(y) * sums[(t - lane) * ${TOTALS}u + ${R}u + r];
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
        out[out_at + o] = y;
    }
}
