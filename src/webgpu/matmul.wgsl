// matmul: products of one weight with many rows of activations.
//
// A workgroup of 64 makes 64 rows of activations by 64 rows of the weight, each invocation 8 by 8 of them in registers. Each invocation
// decodes one row of the weight, a unit of 32 columns at a time, into workgroup memory, together with the same columns of the
// activations (in the unit's own order); what the next step needs is on its way while this one multiplies.
// SPLIT: the columns are dealt to several workgroups whose sums `join_splits` adds.
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
#use ${TYPE0} K=0
#use activation

var<workgroup> ws: array<vec4<f32>, 512>; // [32 columns][64 rows]
var<workgroup> xs: array<vec4<f32>, 512>; // the same, a column's rows turned by 4 for every 4 columns: writers hit different banks

fn input_vector(row: u32, v: u32) -> vec4<f32> {
    var r = vec4<f32>(0.0);
    if (row >= p.n_batch) {
        return r;
    }
#if ODD
    for (var c = 0u; c < 4u; c++) {
        if (4u * v + c < p.n_in) {
            r[c] = x[row * p.x_cols + 4u * v + c];
        }
    }
#else
    if (4u * v < p.n_in) {
        r = x[row * (p.x_cols / 4u) + v];
    }
#end
#if CLIP
    return clamp(r, vec4<f32>(p.in_min), vec4<f32>(p.in_max));
#else
    return r;
#end
}

fn finish(row: u32, o: u32, sum: f32, split: u32) {
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
    out[row * p.out_cols + p.out_first + o] = y;
#end
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let first_row = group.y * 64u;
    let first_out = group.x * 64u;
    let tx = t % 8u; // rows of the weight: 4 tx and 32 + 4 tx on
    let ty = t / 8u; // rows of the activations likewise
#for i 8
    var low${i} = vec4<f32>(0.0);
    var high${i} = vec4<f32>(0.0);
#end
    let row = min(first_out + t, p.n_rows - 1u) * p.w0.x;
    let begin = group.z * p.split_units;
    let end = min(begin + p.split_units, p.n_units);
    var raw = fetch0(row, begin);
    // Invocation t brings vector t % 8 of the rows t / 8, t / 8 + 8, ...
    let xj = t % 8u;
    let xm = t / 8u;
#for i 8
    var v${i} = input_vector(first_row + xm + ${i}u * 8u, xi0(begin, xj));
#end
    for (var u = begin; u < end; u++) {
        let w = decode0(raw, u);
        workgroupBarrier();
#for j 8
#for c 4
        ws[(4u * ${j}u + ${c}u) * 16u + t / 4u][t % 4u] = w[${j}][${c}];
#end
#end
#for i 8
#for c 4
        xs[(4u * xj + ${c}u) * 16u + (((xm + ${i}u * 8u) / 4u + xj) & 15u)][xm % 4u] = v${i}[${c}];
#end
#end
        workgroupBarrier();
        let next = min(u + 1u, end - 1u);
        raw = fetch0(row, next);
#for i 8
        v${i} = input_vector(first_row + xm + ${i}u * 8u, xi0(next, xj));
#end
        for (var k = 0u; k < 32u; k++) {
            let turn = k >> 2u;
            let a = xs[k * 16u + ((ty + turn) & 15u)];
            let b = xs[k * 16u + ((8u + ty + turn) & 15u)];
            let wl = ws[k * 16u + tx];
            let wh = ws[k * 16u + 8u + tx];
#for i 4
            low${i} += a[${i}] * wl;
            high${i} += a[${i}] * wh;
#end
            low4 += b.x * wl;
            high4 += b.x * wh;
            low5 += b.y * wl;
            high5 += b.y * wh;
            low6 += b.z * wl;
            high6 += b.z * wh;
            low7 += b.w * wl;
            high7 += b.w * wh;
        }
    }
#for i 8
#for c 4
    finish(first_row + (${i}u / 4u) * 32u + 4u * ty + ${i}u % 4u, first_out + 4u * tx + ${c}u, low${i}[${c}], group.z);
    finish(first_row + (${i}u / 4u) * 32u + 4u * ty + ${i}u % 4u, first_out + 32u + 4u * tx + ${c}u, high${i}[${c}], group.z);
#end
#end
}
