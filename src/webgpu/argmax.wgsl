// argmax: the largest of n numbers, the lowest index among equals; index -2 as soon as one is NaN or +infinity. FIRST: each
// workgroup reduces one stretch of logits to a pair; otherwise one workgroup reduces the pairs to the index.
struct Params {
    first: u32, // element of logits
    n: u32,
    stretch: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#if FIRST
#bind write logits: array<f32>
#use bad_number
#end
#bind write values: array<f32>
#bind write indices: array<u32>
#if !FIRST
#bind write id: array<u32>
#end
var<workgroup> best: array<f32, 256>;
var<workgroup> best_at: array<u32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    var value = -3.4e38;
    var at = 0xffffffffu;
#if FIRST
    let end = min((group.x + 1u) * p.stretch, p.n);
    for (var i = group.x * p.stretch + t; i < end; i += 256u) {
        let v = logits[p.first + i];
        if (is_bad(v)) {
            value = 3.4e38;
            at = BAD;
        } else if (v > value || at == 0xffffffffu) {
            value = v;
            at = i;
        }
    }
#else
    for (var i = t; i < p.n; i += 256u) {
        let v = values[i];
        if (indices[i] != 0xffffffffu && (at == 0xffffffffu || v > value || (v == value && indices[i] < at))) {
            value = v;
            at = indices[i];
        }
    }
#end
    best[t] = value;
    best_at[t] = at;
    workgroupBarrier();
    for (var s = 128u; s > 0u; s = s >> 1u) {
        if (t < s) {
            let v = best[t + s];
            let a = best_at[t + s];
            if (a != 0xffffffffu && (best_at[t] == 0xffffffffu || v > best[t] || (v == best[t] && a < best_at[t]))) {
                best[t] = v;
                best_at[t] = a;
            }
        }
        workgroupBarrier();
    }
    if (t == 0u) {
#if FIRST
        values[group.x] = best[0];
        indices[group.x] = best_at[0];
#else
        id[0] = best_at[0];
#end
    }
}
