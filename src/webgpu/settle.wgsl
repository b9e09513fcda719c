// settle: x = (x + RMS(term, term_norm)) * scale; out = RMS(x, norm). One workgroup a row, each invocation OWN columns of it, WG
// apart. Each part is optional. SUMS: the term is what a split product left, the sum of n_sums tensors.
struct Params {
    n_cols: u32,
    term_norm_at: u32, // elements of the vectors
    norm_at: u32,
    scale_at: u32,
    eps: f32,
    n_rows: u32,
    n_sums: u32,
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

#if TERM
fn term_at(at: u32) -> f32 {
    var v = term[at];
#if SUMS
    for (var s = 1u; s < p.n_sums; s++) {
        v += term[s * p.n_rows * p.n_cols + at];
    }
#end
    return v;
}
#end

@compute @workgroup_size(${WG})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let at = group.x * p.n_cols + t;
    let n = p.n_cols - min(t, p.n_cols); // columns from the first of its own to the end
    var squares = 0.0;
#for i OWN
    var v${i} = 0.0;
    if (${i}u * ${WG}u < n) {
#if TERM
        v${i} = term_at(at + ${i}u * ${WG}u);
#else
        v${i} = x[at + ${i}u * ${WG}u];
#end
    }
    squares += v${i} * v${i};
#end
#if TERM
#if TERM_NORM
    let factor = 1.0 / sqrt(group_sum(squares, t) / f32(p.n_cols) + p.eps);
#end
    squares = 0.0;
#for i OWN
    if (${i}u * ${WG}u < n) {
#if TERM_NORM
        v${i} *= factor * vectors[p.term_norm_at + t + ${i}u * ${WG}u];
#end
        v${i} += x[at + ${i}u * ${WG}u];
#if SCALE
        v${i} *= vectors[p.scale_at];
#end
        x[at + ${i}u * ${WG}u] = v${i};
        squares += v${i} * v${i};
    }
#end
#end
#if OUT
    let own = 1.0 / sqrt(group_sum(squares, t) / f32(p.n_cols) + p.eps);
#for i OWN
    if (${i}u * ${WG}u < n) {
#if NORM
        out[at + ${i}u * ${WG}u] = v${i} * own * vectors[p.norm_at + t + ${i}u * ${WG}u];
#else
        out[at + ${i}u * ${WG}u] = v${i} * own;
#end
    }
#end
#end
}
