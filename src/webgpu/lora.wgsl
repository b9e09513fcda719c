// lora: the two products of a low-rank adapter. FIRST: middle[i, r] = A[r] . x[i], one workgroup each. Otherwise
// out[i, first_col + o] += scale * B[o] . middle[i], one invocation each.
struct Params {
    n_in: u32,
    rank: u32,
    n_out: u32,
    out_cols: u32,
    first_col: u32,
    scale: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write x: array<f32>
#bind write matrix: array<f32>
#bind write out: array<f32>
#if FIRST
#use reduce WG=64

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    var sum = 0.0;
    for (var i = t; i < p.n_in; i += 64u) {
        sum += matrix[group.x * p.n_in + i] * x[group.y * p.n_in + i];
    }
    let total = group_sum(sum, t);
    if (t == 0u) {
        out[group.y * p.rank + group.x] = total;
    }
}
#else

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= p.n_out) {
        return;
    }
    var sum = 0.0;
    for (var r = 0u; r < p.rank; r++) {
        sum += matrix[id.x * p.rank + r] * x[id.y * p.rank + r];
    }
    out[id.y * p.out_cols + p.first_col + id.x] += p.scale * sum;
}
#end
