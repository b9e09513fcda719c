// combine: joins the pieces that `attend` left: one workgroup for a head of a row.
struct Params {
    head_dim: u32,
    n_pieces: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write pieces: array<f32>
#bind write marks: array<vec2<f32>>
#bind write out: array<f32>

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let first = group.x * p.n_pieces;
    var top = -3.0e38;
    for (var s = 0u; s < p.n_pieces; s++) {
        top = max(top, marks[first + s].x);
    }
    var total = 0.0;
    for (var s = 0u; s < p.n_pieces; s++) {
        total += marks[first + s].y * exp(marks[first + s].x - top);
    }
    for (var i = t; i < p.head_dim; i += 64u) {
        var sum = 0.0;
        for (var s = 0u; s < p.n_pieces; s++) {
            sum += pieces[(first + s) * p.head_dim + i] * exp(marks[first + s].x - top);
        }
        out[group.x * p.head_dim + i] = sum / total;
    }
}
