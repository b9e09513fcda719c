// matmul: products of one weight with many rows of activations.
//
// A workgroup of 256 makes 64 rows of activations by 64 rows of the weight, each invocation 4 by 4. The weight's rows are decoded one
// unit of 32 columns at a time into workgroup memory, together with the same columns of the activations (in the unit's own order).
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

var<workgroup> xs: array<f32, 2048>; // [32 columns][64 rows]
var<workgroup> ws: array<f32, 2048>;

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

fn finish(row: u32, o: u32, sum: f32) {
    if (row >= p.n_batch || o >= p.n_rows) {
        return;
    }
    var y = sum;
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
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let first_row = group.y * 64u;
    let first_out = group.x * 64u;
    let tx = t % 16u; // 4 rows of the weight
    let ty = t / 16u; // 4 rows of the activations
#for i 4
    var sum${i} = vec4<f32>(0.0);
#end
    for (var u = 0u; u < p.n_units; u++) {
        for (var i = t; i < 512u; i += 256u) {
            let m = i % 64u;
            let j = i / 64u;
            let v = input_vector(first_row + m, xi0(u, j));
#for c 4
            xs[(4u * j + ${c}u) * 64u + m] = v[${c}];
#end
        }
        if (t < 64u) {
            let v = decode0(fetch0(min(first_out + t, p.n_rows - 1u) * p.w0.x, u), u);
#for j 8
#for c 4
            ws[(4u * ${j}u + ${c}u) * 64u + t] = v[${j}][${c}];
#end
#end
        }
        workgroupBarrier();
        for (var k = 0u; k < 32u; k++) {
            let at = k * 64u;
            let w = vec4<f32>(ws[at + 4u * tx], ws[at + 4u * tx + 1u], ws[at + 4u * tx + 2u], ws[at + 4u * tx + 3u]);
#for i 4
            sum${i} += xs[at + 4u * ty + ${i}u] * w;
#end
        }
        workgroupBarrier();
    }
#for i 4
#for c 4
    finish(first_row + 4u * ty + ${i}u, first_out + 4u * tx + ${c}u, sum${i}[${c}]);
#end
#end
}
