// top_k: each workgroup sorts 1024 candidates (larger first, lower id among equals) and keeps the first k. Repeated until one
// workgroup is left. FIRST: candidates are the logits themselves, and each workgroup also leaves its largest and the sum of
// exp(logit - largest). LAST: writes the answer, with the largest logit and log(sum(exp)) over all of those.
struct Params {
    first: u32, // element of logits
    n: u32,
    k: u32,
    n_sums: u32,
    wanted: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#if FIRST
#bind write logits: array<f32>
#use bad_number
#else
#bind write from_values: array<f32>
#bind write from_ids: array<u32>
#end
#bind write sums: array<vec2<f32>>
#if LAST
#bind write out: array<u32>
#else
#bind write to_values: array<f32>
#bind write to_ids: array<u32>
#end
#use reduce WG=256
var<workgroup> values: array<f32, 1024>;
var<workgroup> ids: array<u32, 1024>;

fn goes_before(a: u32, b: u32) -> bool {
    return values[a] > values[b] || (values[a] == values[b] && ids[a] < ids[b]);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    for (var i = t; i < 1024u; i += 256u) {
        let at = group.x * 1024u + i;
        var v = -3.4e38;
        var id = 0xffffffffu;
        if (at < p.n) {
#if FIRST
            let logit = logits[p.first + at];
            v = select(logit, 3.4e38, is_bad(logit));
            id = select(at, BAD, is_bad(logit));
#else
            v = from_values[at];
            id = from_ids[at];
#end
        }
        values[i] = v;
        ids[i] = id;
    }
    workgroupBarrier();
#if FIRST
    let largest = group_max(max(max(values[t], values[t + 256u]), max(values[t + 512u], values[t + 768u])), t);
    var sum = 0.0;
    for (var i = t; i < 1024u; i += 256u) {
        if (ids[i] != 0xffffffffu) {
            sum += exp(values[i] - largest);
        }
    }
    let total = group_sum(sum, t);
    if (t == 0u) {
        sums[group.x] = vec2<f32>(largest, total);
    }
#end
    for (var size = 2u; size <= 1024u; size = size << 1u) {
        for (var step = size >> 1u; step > 0u; step = step >> 1u) {
            for (var i = t; i < 512u; i += 256u) {
                let a = (i / step) * step * 2u + i % step;
                let b = a + step;
                let falling = (a & size) == 0u;
                if (goes_before(b, a) == falling) {
                    let v = values[a];
                    let id = ids[a];
                    values[a] = values[b];
                    ids[a] = ids[b];
                    values[b] = v;
                    ids[b] = id;
                }
            }
            workgroupBarrier();
        }
    }
#if LAST
    var top = -3.4e38;
    for (var i = t; i < p.n_sums; i += 256u) {
        top = max(top, sums[i].x);
    }
    let all_top = group_max(top, t);
    var mass = 0.0;
    for (var i = t; i < p.n_sums; i += 256u) {
        mass += sums[i].y * exp(sums[i].x - all_top);
    }
    let all_mass = group_sum(mass, t);
    for (var i = t; i < p.wanted; i += 256u) {
        out[i] = ids[i];
        out[p.wanted + i] = bitcast<u32>(values[i]);
    }
    if (t == 0u) {
        out[2u * p.wanted] = bitcast<u32>(all_top);
        out[2u * p.wanted + 1u] = bitcast<u32>(log(all_mass));
    }
#else
    for (var i = t; i < p.k; i += 256u) {
        to_values[group.x * p.k + i] = values[i];
        to_ids[group.x * p.k + i] = ids[i];
    }
#end
}
