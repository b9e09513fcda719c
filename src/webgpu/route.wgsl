// route: the n_used most probable experts of each row (the lower index among equals) and their weights: softmax over the scaled
// router products, renormalised over the chosen ones, times down_scale. One workgroup a row, at most 256 experts.
struct Params {
    n_experts: u32,
    n_used: u32,
    scale_at: u32, // of down_scale in the vectors
    to_unit: f32,  // 1 / sqrt(d)
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write products: array<f32>
#bind write chosen: array<u32>
#bind write shares: array<f32>
#bind read vectors: array<f32>
#use reduce WG=256
var<workgroup> probabilities: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    var v = -3.0e38;
    if (t < p.n_experts) {
        v = products[group.x * p.n_experts + t] * p.to_unit;
    }
    let top = group_max(v, t);
    var mass = 0.0;
    if (t < p.n_experts) {
        mass = exp(v - top);
    }
    let mine = mass / group_sum(mass, t);
    probabilities[t] = mine;
    workgroupBarrier();
    var rank = 0u;
    for (var i = 0u; i < p.n_experts; i++) {
        let other = probabilities[i];
        rank += select(0u, 1u, other > mine || (other == mine && i < t));
    }
    let wins = t < p.n_experts && rank < p.n_used;
    let total = max(group_sum(select(0.0, mine, wins), t), 6.103515625e-5);
    if (wins) {
        var share = mine / total;
#if SCALES
        share *= vectors[p.scale_at + t];
#end
        chosen[group.x * p.n_used + rank] = t;
        shares[group.x * p.n_used + rank] = share;
    }
}
