// tower_matmul: products of one weight with very many rows of activations.
//
// A workgroup of 128 makes 64 rows of activations by 128 rows of the weight, each invocation 8 by 8. Sixteen columns at a time are
// laid out as rows of 4 vectors and one of padding, so that the 16 invocations that read different rows of the weight never meet in
// a bank. While one stretch is multiplied the next is on its way into registers.
struct Params {
    w0: vec4<u32>,
    n_rows: u32, // of the weight
    n_batch: u32,
    n_in: u32,
    out_cols: u32,
    out_first: u32,
    bias_at: u32,
    in_min: f32,
    in_max: f32,
    out_min: f32,
    out_max: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write x: array<vec4<f32>>
#if BIAS
#bind read vectors: array<f32>
#end
#bind write out: array<f32>
#bind read w0: array<vec4<u32>>
#use w_common
#use activation

var<workgroup> xs: array<vec4<f32>, 320>; // [64 rows][5]
var<workgroup> ws: array<vec4<f32>, 640>; // [128 rows][5]

// Weights 4 q .. 4 q + 3 of the row that begins at word `row`.
fn weights(row: u32, q: u32) -> vec4<f32> {
#if F32
    return bitcast<vec4<f32>>(w0[row + q]);
#end
#if F16
    let word = w0[row + (q >> 1u)];
    let half = select(word.xy, word.zw, (q & 1u) == 1u);
    return vec4<f32>(halves(half.x), halves(half.y));
#end
#if BF16
    let word = w0[row + (q >> 1u)];
    let half = select(word.xy, word.zw, (q & 1u) == 1u);
    return bitcast<vec4<f32>>(vec4<u32>(half.x << 16u, half.x & 0xffff0000u, half.y << 16u, half.y & 0xffff0000u));
#end
#if Q8_0
    let u = q >> 3u;
    let d = half_at(w0[row + p.w0.y + (u >> 3u)][(u >> 1u) & 3u], u);
    return signed_bytes(w0[row + (q >> 2u)][q & 3u]) * d;
#end
}

fn inputs(row: u32, q: u32) -> vec4<f32> {
    var v = vec4<f32>(0.0);
    if (row < p.n_batch && 4u * q < p.n_in) {
        v = x[row * (p.n_in / 4u) + q];
    }
#if CLIP
    return clamp(v, vec4<f32>(p.in_min), vec4<f32>(p.in_max));
#else
    return v;
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
    let at = row * p.out_cols + p.out_first + o;
#if GATES
    out[at] = activate(out[at]) * y;
#else
#if ACTIVATES
    out[at] = activate(y);
#else
    out[at] = y;
#end
#end
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let first_row = group.y * 64u;
    let first_out = group.x * 128u;
    let tx = t % 16u;
    let ty = t / 16u;
    let source = t / 4u; // rows source, source + 32, ... are this invocation's to fetch
    let quad = t % 4u;
#for j 4
    let weight${j} = min(first_out + source + 32u * ${j}u, p.n_rows - 1u) * p.w0.x;
#end
#for i 8
    var low${i} = vec4<f32>(0.0);
    var high${i} = vec4<f32>(0.0);
#end
    var x0 = inputs(first_row + source, quad);
    var x1 = inputs(first_row + source + 32u, quad);
#for j 4
    var v${j} = weights(weight${j}, quad);
#end
    let n_quads = (p.n_in + 3u) / 4u;
    for (var q = 0u; q < n_quads; q += 4u) {
        xs[source * 5u + quad] = x0;
        xs[(source + 32u) * 5u + quad] = x1;
#for j 4
        ws[(source + 32u * ${j}u) * 5u + quad] = v${j};
#end
        workgroupBarrier();
        if (q + 4u < n_quads) {
            x0 = inputs(first_row + source, q + 4u + quad);
            x1 = inputs(first_row + source + 32u, q + 4u + quad);
            if (q + 4u + quad < n_quads) {
#for j 4
                v${j} = weights(weight${j}, q + 4u + quad);
#end
            }
        }
#for k 4
        {
#for i 8
            let a${i} = xs[(8u * ty + ${i}u) * 5u + ${k}u];
#end
#for c 4
            {
                let b = ws[(tx + 16u * ${c}u) * 5u + ${k}u];
                let d = ws[(tx + 16u * ${c}u + 64u) * 5u + ${k}u];
#for i 8
                low${i}[${c}] = fma(a${i}.w, b.w, fma(a${i}.z, b.z, fma(a${i}.y, b.y, fma(a${i}.x, b.x, low${i}[${c}]))));
                high${i}[${c}] = fma(a${i}.w, d.w, fma(a${i}.z, d.z, fma(a${i}.y, d.y, fma(a${i}.x, d.x, high${i}[${c}]))));
#end
            }
#end
        }
#end
        workgroupBarrier();
    }
#for i 8
#for c 4
    finish(first_row + 8u * ty + ${i}u, first_out + tx + 16u * ${c}u, low${i}[${c}]);
    finish(first_row + 8u * ty + ${i}u, first_out + tx + 16u * ${c}u + 64u, high${i}[${c}]);
#end
#end
}
