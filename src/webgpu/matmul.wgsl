// matmul: products of one weight with many rows of activations.
//
// A workgroup makes a tile of TM * LM rows of activations by TN * LN rows of the weight; its LM * LN invocations each hold TM by TN
// of it in registers, rows LM apart and columns LN apart. Sixteen columns at a time go through workgroup memory, as vectors of four
// consecutive ones, and what the next step needs is on its way while one multiplies. Each stretch of 32 invocations is 4 by 8, in
// such an order that neighbours read the same or adjoining vectors. Indices into workgroup memory are the same in all steps but for
// numbers written out and the count of the loop, so that the inner one computes neither addresses nor bounds.
//
// An invocation decodes rows of the weight, units of 32 columns (in the unit's own order) in two steps. TURNS: two share a row, one
// decodes the first halves of its units, the other the second ones. HALVES: numbers of 16 bits, two invocations bring neighbouring
// words of 16 bytes of one row.
// SPLIT: the columns are dealt to several workgroups whose sums `join_splits` or `settle` adds.
struct Params {
    w0: vec4<u32>,
    n_rows: u32, // of the weight
    n_batch: u32,
    n_in: u32,
    n_units: u32,
    x_cols: u32,
    out_cols: u32,
    out_first: u32,
    bias_at: u32,
    other_cols: u32,
    other_first: u32,
    cap: f32,
    in_min: f32,
    in_max: f32,
    out_min: f32,
    out_max: f32,
    split_units: u32, // of one workgroup
}
@group(0) @binding(0) var<uniform> p: Params;
#if ODD
#bind write x: array<f32>
#else
#bind write x: array<vec4<f32>>
#end
#if BIAS
#bind read vectors: array<f32>
#end
#if PER_LAYER
#bind write per_layer: array<f32>
#end
#bind write out: array<f32>
#bind read w0: array<vec4<u32>>
#use w_common
#if !HALVES
#use ${TYPE0} K=0 W=w0 P=p.w0
#end
#use activation

const LM = ${LM}u;
const LN = ${LN}u;
const INVOCATIONS = LM * LN;
const OUTS = ${TN}u * LN; // rows of the weight in a tile
const PITCH = LM + 2u;    // padded, so that writers of four vectors of a row hit different banks
var<workgroup> xs: array<array<array<vec4<f32>, PITCH>, 4>, ${TM}>; // [rows LM apart][vector][row]
var<workgroup> ws: array<array<array<vec4<f32>, LN>, 4>, ${TN}>;    // likewise

#if HALVES
// Four numbers of 16 bits.
fn numbers(w: vec2<u32>) -> vec4<f32> {
#if BF16
    return bitcast<vec4<f32>>(vec4<u32>(w.x << 16u, w.x & 0xffff0000u, w.y << 16u, w.y & 0xffff0000u));
#else
    return vec4<f32>(halves(w.x), halves(w.y));
#end
}
#end

// Vector v of the row that begins at `row`.
fn input_vector(row: u32, v: u32) -> vec4<f32> {
#if ODD
    var r = vec4<f32>(0.0);
    for (var c = 0u; c < 4u; c++) {
        if (4u * v + c < p.n_in) {
            r[c] = x[row + 4u * v + c];
        }
    }
    return r;
#else
#if RAGGED
    return select(vec4<f32>(0.0), x[row + min(v, p.x_cols / 4u - 1u)], 4u * v < p.n_in);
#else
    return x[row + v];
#end
#end
}

// A vector as it is multiplied. Not asked for where it is loaded: that would wait for it.
fn clipped(v: vec4<f32>) -> vec4<f32> {
#if CLIP
    return clamp(v, vec4<f32>(p.in_min), vec4<f32>(p.in_max));
#else
    return v;
#end
}

// The vector of a row of activations that meets vector j of a step.
fn place(step: u32, j: u32) -> u32 {
#if HALVES
    return 4u * step + j;
#else
    return xi0(step >> 1u, (step & 1u) * 4u + j);
#end
}

// What stands where the result goes, for a product that gates it.
fn gate_at(row: u32, o: u32) -> f32 {
#if GATES
    return out[min(row, p.n_batch - 1u) * p.out_cols + p.out_first + min(o, p.n_rows - 1u)];
#else
    return 0.0;
#end
}

fn finish(row: u32, o: u32, sum: f32, gate: f32, split: u32) {
    if (row >= p.n_batch || o >= p.n_rows) {
        return;
    }
    var y = sum;
#if SPLIT
    out[(split * p.n_batch + row) * p.n_rows + o] = y;
#else
#if BIAS
    y += vectors[p.bias_at + o];
#end
#if CLIP
    y = clamp(y, p.out_min, p.out_max);
#end
#if CAP
    y = p.cap * bounded_tanh(y / p.cap);
#end
#if PER_LAYER
    y = gelu_tanh(y) * per_layer[row * p.other_cols + p.other_first + o];
#end
#if GATES
    y *= activate(gate);
#end
#if ACTIVATES
    y = activate(y);
#end
    out[row * p.out_cols + p.out_first + o] = y;
#end
}

@compute @workgroup_size(INVOCATIONS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let first_row = group.y * (${TM}u * LM);
    let first_out = group.x * OUTS;
    // Where the subgroup of 32 stands, and the invocation in it.
    let mr = (t / 32u) / (LN / 8u) * 4u + (((t >> 3u) & 2u) | (t & 1u));
    let nr = (t / 32u) % (LN / 8u) * 8u + ((t >> 1u) & 7u);
#for i TM
#for c TN
    var sum${i}_${c} = 0.0;
#end
#end
    let begin = group.z * p.split_units;
    let end = min(begin + p.split_units, p.n_units);

    // What this invocation brings: words or units of the weight, and vectors of the activations.
#if HALVES
#for e WORDS
    let w_row${e} = min(first_out + t / 2u + ${e}u * (INVOCATIONS / 2u), p.n_rows - 1u) * p.w0.x + t % 2u;
    let w_at${e} = (t / 2u + ${e}u * (INVOCATIONS / 2u)) / LN;
    var word${e} = w0[w_row${e} + 4u * begin];
#end
    let w_lane = (t / 2u) % LN;
    let w_vector = 2u * (t % 2u);
#else
    let w_row = min(first_out + t % OUTS, p.n_rows - 1u) * p.w0.x;
    let w_at = (t % OUTS) / LN;
    let w_lane = t % LN;
    var raw = fetch0(w_row, begin);
#end
    let xj = t % 4u;
    let x_at = t / (4u * LM);
    let x_lane = (t / 4u) % LM;
#for e XV
#if ODD
    let x_row${e} = min(first_row + t / 4u + ${e}u * (INVOCATIONS / 4u), p.n_batch - 1u) * p.x_cols;
#else
    let x_row${e} = min(first_row + t / 4u + ${e}u * (INVOCATIONS / 4u), p.n_batch - 1u) * (p.x_cols / 4u);
#end
    var v${e} = input_vector(x_row${e}, place(2u * begin, xj));
#end
    for (var step = 2u * begin; step < 2u * end; step++) {
        workgroupBarrier();
        let next = min(step + 1u, 2u * end - 1u);
#for e XV
        xs[x_at + ${e}u * (INVOCATIONS / 4u / LM)][xj][x_lane] = clipped(v${e});
#end
#if HALVES
#for e WORDS
        ws[w_at${e}][w_vector][w_lane] = numbers(word${e}.xy);
        ws[w_at${e}][w_vector + 1u][w_lane] = numbers(word${e}.zw);
        word${e} = w0[w_row${e} + 2u * next];
#end
#else
        if ((step & 1u) == 0u) {
            if (t < OUTS) {
                let w = decode0(raw, step >> 1u);
#for j 4
                ws[w_at][${j}][w_lane] = w[${j}];
#end
#if TURNS
                raw = fetch0(w_row, min((step >> 1u) + 1u, end - 1u));
#end
            }
        } else if (t >= ${TURNS}u * OUTS) {
            let w = decode0(raw, step >> 1u);
#for j 4
            ws[w_at][${j}][w_lane] = w[${j} + 4];
#end
            raw = fetch0(w_row, min((step >> 1u) + 1u, end - 1u));
        }
#end
        workgroupBarrier();
#for e XV
        v${e} = input_vector(x_row${e}, place(next, xj));
#end
        for (var k = 0u; k < 4u; k++) {
#for c TN
            let w${c} = ws[${c}][k][nr];
#end
#for i TM
            {
                let a = xs[${i}][k][mr];
#for c TN
                sum${i}_${c} = fma(a.w, w${c}.w, fma(a.z, w${c}.z, fma(a.y, w${c}.y, fma(a.x, w${c}.x, sum${i}_${c}))));
#end
            }
#end
        }
    }
    // A row's gates are asked for together.
#for i TM
    {
        let row = first_row + ${i}u * LM + mr;
#for c TN
        let gate${c} = gate_at(row, first_out + ${c}u * LN + nr);
#end
#for c TN
        finish(row, first_out + ${c}u * LN + nr, sum${i}_${c}, gate${c}, group.z);
#end
    }
#end
}
