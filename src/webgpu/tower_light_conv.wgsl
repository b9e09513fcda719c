// tower_light_conv: gated linear unit, depthwise causal convolution over time, RMS, silu. One workgroup a step. A row of the weight
// holds a channel's taps (at most 32), the last one for the step itself.
struct Params {
    w0: vec4<u32>,
    n_cols: u32, // channels; a row of x has twice as many
    n_taps: u32,
    norm_at: u32, // elements of the vectors
    eps: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write x: array<f32>
#bind write out: array<f32>
#bind read vectors: array<f32>
#bind read w0: array<vec4<f32>>
#use reduce WG=256

fn sigmoid(x: f32) -> f32 {
    return 1.0 / (1.0 + exp(-clamp(x, -80.0, 80.0)));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let step = group.x;
    let to = step * p.n_cols;
    var squares = 0.0;
    for (var c = t; c < p.n_cols; c += 256u) {
        var sum = 0.0;
        for (var j = 0u; j < min(p.n_taps, step + 1u); j++) {
            let tap = p.n_taps - 1u - j;
            let source = (step - j) * 2u * p.n_cols + c;
            sum += w0[c * p.w0.x + tap / 4u][tap % 4u] * x[source] * sigmoid(x[source + p.n_cols]);
        }
        out[to + c] = sum;
        squares += sum * sum;
    }
    let factor = 1.0 / sqrt(group_sum(squares, t) / f32(p.n_cols) + p.eps);
    for (var c = t; c < p.n_cols; c += 256u) {
        let y = out[to + c] * factor * vectors[p.norm_at + c];
        out[to + c] = y * sigmoid(y);
    }
}
