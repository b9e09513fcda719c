// per_layer: out[l] = (RMS(projected[l] / sqrt(d), norm) + rows[l]) / sqrt(2) for one layer l of one row per workgroup.
struct Params {
    width: u32,
    n_cols: u32,
    norm_at: u32,
    to_unit: f32, // 1 / sqrt(d)
    eps: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write projected: array<f32>
#bind write rows: array<f32>
#if APART
#bind write out: array<f32>
#end
#bind read vectors: array<f32>
#use reduce WG=64

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let at = group.y * p.n_cols + group.x * p.width;
    var squares = 0.0;
    for (var i = t; i < p.width; i += 64u) {
        let v = projected[at + i] * p.to_unit;
        squares += v * v;
    }
    let factor = p.to_unit / sqrt(group_sum(squares, t) / f32(p.width) + p.eps);
    for (var i = t; i < p.width; i += 64u) {
        let v = (projected[at + i] * factor * vectors[p.norm_at + i] + rows[at + i]) * 0.7071067811865476;
#if APART
        out[at + i] = v;
#else
        rows[at + i] = v;
#end
    }
}
