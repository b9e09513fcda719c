// suppress: logits of some ids become -3.0e38, in every row.
struct Params {
    ids: array<vec4<u32>, 15>,
    n_ids: u32,
    n_cols: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write logits: array<f32>

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    if (t < p.n_ids) {
        logits[group.x * p.n_cols + p.ids[t / 4u][t % 4u]] = -3.0e38;
    }
}
