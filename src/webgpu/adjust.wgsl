// adjust: biases, then penalties over the recent tokens, on a row of logits in place. One workgroup; an id that is listed several
// times is treated once, by the invocation of its first place. Logits below -1e38 are forbidden and stay so.
struct Params {
    first: u32, // element of logits
    n: u32,     // logits
    n_biases: u32,
    n_window: u32,
    repetition: f32,
    presence: f32,
    frequency: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write logits: array<f32>
#if BIASES
#bind write bias_ids: array<u32>
#bind write bias_values: array<f32>
#end
#if WINDOW
#bind write window: array<u32>
#end
var<workgroup> ids: array<u32, 1024>;

fn is_first(i: u32) -> bool {
    for (var j = 0u; j < i; j++) {
        if (ids[j] == ids[i]) {
            return false;
        }
    }
    return ids[i] < p.n;
}

#if BIASES
fn biased(i: u32, logit: f32) -> f32 {
    var v = logit;
    for (var j = i; j < p.n_biases; j++) {
        if (ids[j] == ids[i]) {
            v = select(v + bias_values[j], -3.4e38, v < -1e38 || bias_values[j] < -1e38);
        }
    }
    return v;
}
#end

#if WINDOW
fn penalised(i: u32, logit: f32) -> f32 {
    if (logit < -1e38) {
        return logit;
    }
    var count = 0.0;
    for (var j = i; j < p.n_window; j++) {
        count += f32(ids[j] == ids[i]);
    }
    var v = logit * p.repetition;
    if (logit > 0.0) {
        v = logit / p.repetition;
    }
    return v - p.presence - p.frequency * count;
}
#end

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) t: u32) {
#if BIASES
    for (var i = t; i < p.n_biases; i += 256u) {
        ids[i] = bias_ids[i];
    }
    workgroupBarrier();
    for (var i = t; i < p.n_biases; i += 256u) {
        if (is_first(i)) {
            logits[p.first + ids[i]] = biased(i, logits[p.first + ids[i]]);
        }
    }
    storageBarrier();
    workgroupBarrier();
#end
#if WINDOW
    for (var i = t; i < p.n_window; i += 256u) {
        ids[i] = window[i];
    }
    workgroupBarrier();
    for (var i = t; i < p.n_window; i += 256u) {
        if (is_first(i)) {
            logits[p.first + ids[i]] = penalised(i, logits[p.first + ids[i]]);
        }
    }
#end
}
