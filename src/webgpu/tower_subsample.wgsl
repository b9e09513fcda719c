// tower_subsample: 3 x 3 convolution with stride 2 and padding 1, layer norm over the channels, ReLU. One workgroup an output place
// (time, frequency). A weight row is an output channel: 9 * n_channels numbers in the order (channel, time, frequency), F32.
struct Params {
    w0: vec4<u32>,
    n_times: u32, // of the input
    n_frequencies: u32,
    n_channels: u32,
    n_out: u32, // channels
    n_out_frequencies: u32,
    norm_at: u32, // elements of the vectors
    eps: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write x: array<f32>
#bind write out: array<f32>
#bind read vectors: array<f32>
#bind read w0: array<vec4<f32>>
#use reduce WG=64

var<workgroup> surroundings: array<f32, ${PLACES}>; // 9 * n_channels, filled up with zeros to whole vectors

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let f = group.x;
    let time = group.y;
    for (var i = t; i < ${PLACES}u; i += 64u) {
        let tap = i % 9u;
        let row = 2u * time + tap / 3u; // one more than the place, which may be -1
        let column = 2u * f + tap % 3u;
        var value = 0.0;
        if (i < 9u * p.n_channels && row >= 1u && row <= p.n_times && column >= 1u && column <= p.n_frequencies) {
            value = x[((row - 1u) * p.n_frequencies + column - 1u) * p.n_channels + i / 9u];
        }
        surroundings[i] = value;
    }
    workgroupBarrier();
    let to = (time * p.n_out_frequencies + f) * p.n_out;
    var own = 0.0;
    for (var o = t; o < p.n_out; o += 64u) {
        var sums = vec4<f32>(0.0);
        for (var j = 0u; j < ${PLACES}u / 4u; j++) {
            let places = vec4<f32>(surroundings[4u * j], surroundings[4u * j + 1u], surroundings[4u * j + 2u], surroundings[4u * j + 3u]);
            sums = fma(places, w0[o * p.w0.x + j], sums);
        }
        let sum = (sums.x + sums.y) + (sums.z + sums.w);
        out[to + o] = sum;
        own += sum;
    }
    let mean = group_sum(own, t) / f32(p.n_out);
    var squares = 0.0;
    for (var o = t; o < p.n_out; o += 64u) {
        let difference = out[to + o] - mean;
        squares += difference * difference;
    }
    let factor = 1.0 / sqrt(group_sum(squares, t) / f32(p.n_out) + p.eps);
    for (var o = t; o < p.n_out; o += 64u) {
        out[to + o] = max(0.0, (out[to + o] - mean) * factor * vectors[p.norm_at + o]);
    }
}
