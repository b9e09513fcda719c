// add_norms: out = RMS(a, a_norm) + RMS(b, b_norm). One workgroup a row.
struct Params {
    n_cols: u32,
    a_norm_at: u32,
    b_norm_at: u32,
    eps: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write a: array<f32>
#bind write b: array<f32>
#if APART
#bind write out: array<f32>
#end
#bind read vectors: array<f32>
#use reduce WG=256

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let at = group.x * p.n_cols;
    var a_squares = 0.0;
    var b_squares = 0.0;
    for (var i = t; i < p.n_cols; i += 256u) {
        let u = a[at + i];
        let v = b[at + i];
        a_squares += u * u;
        b_squares += v * v;
    }
    let a_factor = 1.0 / sqrt(group_sum(a_squares, t) / f32(p.n_cols) + p.eps);
    let b_factor = 1.0 / sqrt(group_sum(b_squares, t) / f32(p.n_cols) + p.eps);
    for (var i = t; i < p.n_cols; i += 256u) {
        let sum = a[at + i] * a_factor * vectors[p.a_norm_at + i] + b[at + i] * b_factor * vectors[p.b_norm_at + i];
#if APART
        out[at + i] = sum;
#else
#if INTO_A
        a[at + i] = sum;
#else
        b[at + i] = sum;
#end
#end
    }
}
