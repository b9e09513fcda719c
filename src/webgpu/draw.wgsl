// draw: chooses one of the k largest logits, which are sorted as top_k leaves them. One workgroup: all weigh, the first walks over
// the weights, in the order in which the sampler does.
struct Params {
    k: u32,
    temperature: f32,
    top_p: f32, // of the mass, above 1: off
    min_p: f32,
    random: u32,
    window_slot: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write best: array<u32>
#bind write id: array<u32>
#if WINDOW
#bind write window: array<u32>
#end
#use bad_number
var<workgroup> weights: array<f32, 256>;

fn choose() -> u32 {
    if (best[0] == BAD || weights[0] == 0.0) {
        return BAD;
    }
    var total = 0.0;
    for (var i = 0u; i < p.k; i++) {
        total += weights[i];
    }
    var mass = 0.0;
    var n = 0u;
    for (; n < p.k; n++) {
        if (weights[n] == 0.0 || (n > 0u && (weights[n] < p.min_p || mass >= p.top_p * total))) {
            break;
        }
        mass += weights[n];
    }
    var place = f32(p.random) * 2.3283064365386963e-10 * mass;
    var chosen = 0u;
    for (; chosen + 1u < n; chosen++) {
        place -= weights[chosen];
        if (place < 0.0) {
            break;
        }
    }
    return best[chosen];
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) t: u32) {
    if (t < p.k) {
        let logit = bitcast<f32>(best[p.k + t]);
        let largest = bitcast<f32>(best[p.k]);
        weights[t] = select(exp((logit - largest) / p.temperature), 0.0, logit < -1e38);
    }
    workgroupBarrier();
    if (t == 0u) {
        let chosen = choose();
        id[0] = chosen;
#if WINDOW
        window[p.window_slot] = chosen;
#end
    }
}
