// tower_layer_norm: out = (x - mean) / sqrt(variance + eps) * weight + bias over each row. One workgroup a row.
struct Params {
    n_cols: u32,
    weight_at: u32, // elements of the vectors
    bias_at: u32,
    eps: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write x: array<f32>
#if OUT
#bind write out: array<f32>
#end
#bind read vectors: array<f32>
#use reduce WG=64

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let at = group.x * p.n_cols;
    var sum = 0.0;
    for (var i = t; i < p.n_cols; i += 64u) {
        sum += x[at + i];
    }
    let mean = group_sum(sum, t) / f32(p.n_cols);
    var squares = 0.0;
    for (var i = t; i < p.n_cols; i += 64u) {
        let difference = x[at + i] - mean;
        squares += difference * difference;
    }
    let factor = 1.0 / sqrt(group_sum(squares, t) / f32(p.n_cols) + p.eps);
    for (var i = t; i < p.n_cols; i += 64u) {
        var y = (x[at + i] - mean) * factor * vectors[p.weight_at + i];
#if BIAS
        y += vectors[p.bias_at + i];
#end
#if OUT
        out[at + i] = y;
#else
        x[at + i] = y;
#end
    }
}
