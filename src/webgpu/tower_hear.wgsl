// tower_hear: attention of one step of sound to itself and the steps just before it, with relative positions and capped scores.
// One workgroup a step and head.
struct Params {
    n_cols: u32,
    head_dim: u32, // at most 256
    span: u32,     // at most 64
    dim_scale_at: u32, // elements of the vectors
    q_scale: f32,
    k_scale: f32,
    cap: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write q: array<f32>
#bind write k: array<f32>
#bind write v: array<f32>
#bind write distances: array<f32>
#bind write out: array<f32>
#bind read vectors: array<f32>
#use activation

var<workgroup> query: array<f32, 256>;
var<workgroup> scores: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let step = group.x;
    let head = group.y * p.head_dim;
    let n = min(step + 1u, p.span);
    for (var c = t; c < p.head_dim; c += 64u) {
        query[c] = q[step * p.n_cols + head + c] * p.q_scale * vectors[p.dim_scale_at + c];
    }
    workgroupBarrier();
    if (t < n) {
        let key = (step - t) * p.n_cols + head;
        let distance = t * p.n_cols + head;
        var by_content = 0.0;
        var by_distance = 0.0;
        for (var c = 0u; c < p.head_dim; c++) {
            by_content = fma(query[c], k[key + c], by_content);
            by_distance = fma(query[c], distances[distance + c], by_distance);
        }
        scores[t] = p.cap * bounded_tanh((by_content * p.k_scale + by_distance) / p.cap);
    }
    workgroupBarrier();
    var largest = scores[0];
    for (var d = 1u; d < n; d++) {
        largest = max(largest, scores[d]);
    }
    var total = 0.0;
    for (var d = 0u; d < n; d++) {
        total += exp(scores[d] - largest);
    }
    for (var c = t; c < p.head_dim; c += 64u) {
        var sum = 0.0;
        for (var d = 0u; d < n; d++) {
            sum = fma(exp(scores[d] - largest), v[(step - d) * p.n_cols + head + c], sum);
        }
        out[step * p.n_cols + head + c] = sum / total;
    }
}
