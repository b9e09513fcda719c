// tower_prepare: queries and keys of a patch are normed per head and turned by its column and row, values are normed. One workgroup
// a patch and head. rope: for each position n_angles cosines, then as many sines; n_angles is a quarter of the head.
struct Params {
    n_cols: u32,
    head_dim: u32, // at most 256
    q_norm_at: u32, // elements of the vectors
    k_norm_at: u32,
    first: u32,     // patch
    n_columns: u32,
    eps: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write q: array<f32>
#bind write k: array<f32>
#bind write v: array<f32>
#bind write rope: array<f32>
#bind read vectors: array<f32>

var<workgroup> sums: array<vec3<f32>, 64>;
var<workgroup> heads: array<vec2<f32>, 256>;

fn factors(own: vec3<f32>, t: u32) -> vec3<f32> {
    sums[t] = own;
    workgroupBarrier();
    for (var s = 32u; s > 0u; s = s >> 1u) {
        if (t < s) {
            sums[t] += sums[t + s];
        }
        workgroupBarrier();
    }
    return 1.0 / sqrt(sums[0] / f32(p.head_dim) + vec3<f32>(p.eps));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let at = group.x * p.n_cols + group.y * p.head_dim;
    var squares = vec3<f32>(0.0);
    for (var i = t; i < p.head_dim; i += 64u) {
        let one = vec3<f32>(q[at + i], k[at + i], v[at + i]);
        squares += one * one;
    }
    let scale = factors(squares, t);
    for (var i = t; i < p.head_dim; i += 64u) {
        heads[i] = vec2<f32>(q[at + i] * scale.x * vectors[p.q_norm_at + i], k[at + i] * scale.y * vectors[p.k_norm_at + i]);
        v[at + i] *= scale.z;
    }
    workgroupBarrier();
    let patch_index = p.first + group.x;
    let n_angles = p.head_dim / 4u;
    for (var i = t; i < p.head_dim; i += 64u) {
        let half = i / (2u * n_angles);
        let inner = i % (2u * n_angles);
        let position = select(patch_index % p.n_columns, patch_index / p.n_columns, half == 1u);
        let angle = position * 2u * n_angles + inner % n_angles;
        let c = rope[angle];
        let s = rope[angle + n_angles];
        var turned = heads[i] * c;
        if (inner < n_angles) {
            turned -= heads[i + n_angles] * s;
        } else {
            turned += heads[i - n_angles] * s;
        }
        q[at + i] = turned.x;
        k[at + i] = turned.y;
    }
}
