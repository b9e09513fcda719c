// settle: x = (x + RMS(term, term_norm)) * scale; out = RMS(x, norm). One workgroup a row. Each part is optional.
struct Params {
    n_cols: u32,
    term_norm_at: u32, // elements of the vectors
    norm_at: u32,
    scale_at: u32,
    eps: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write x: array<f32>
#if TERM
#bind write term: array<f32>
#end
#if OUT
#bind write out: array<f32>
#end
#bind read vectors: array<f32>
#use reduce

@compute @workgroup_size(${WG})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let at = group.x * p.n_cols;
    var squares = 0.0;
#if TERM
#if TERM_NORM
    for (var i = t; i < p.n_cols; i += ${WG}u) {
        let v = term[at + i];
        squares += v * v;
    }
    let factor = 1.0 / sqrt(group_sum(squares, t) / f32(p.n_cols) + p.eps);
    squares = 0.0;
#end
#end
    for (var i = t; i < p.n_cols; i += ${WG}u) {
        var v = x[at + i];
#if TERM
#if TERM_NORM
        v += term[at + i] * factor * vectors[p.term_norm_at + i];
#else
        v += term[at + i];
#end
#end
#if SCALE
        v *= vectors[p.scale_at];
#end
        x[at + i] = v;
        squares += v * v;
    }
#if OUT
    let own = 1.0 / sqrt(group_sum(squares, t) / f32(p.n_cols) + p.eps);
    for (var i = t; i < p.n_cols; i += ${WG}u) {
#if NORM
        out[at + i] = x[at + i] * own * vectors[p.norm_at + i];
#else
        out[at + i] = x[at + i] * own;
#end
    }
#end
}
