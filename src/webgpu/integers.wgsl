// integers: the input of a product as 16-bit integers in two planes of bytes, x = scale (256 high + low), a scale for every 32. So four
// products of bytes are one instruction, and a sum of bytes is exact.
//
// The vectors of 8 elements of a stretch of 64 lie STRIDE apart, in the order 0 2 1 3 4 6 5 7, so that lanes with neighbouring units
// hit different banks.
const STRIDE = ${STRIDE}u;
var<workgroup> x_high: array<vec2<u32>, 8u * STRIDE>;
var<workgroup> x_low: array<vec2<u32>, 8u * STRIDE>;
var<workgroup> x_scales: array<vec2<f32>, STRIDE>;
var<workgroup> x_sums: array<f32, 4u * STRIDE>; // of 16 elements

fn packed(v: vec4<i32>) -> u32 {
    let b = vec4<u32>(v) & vec4<u32>(255u);
    return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}

// The first n_eighths * 8 elements of xs, which all invocations see already.
fn make_integers(n_eighths: u32, t: u32) {
    for (var e = t; e < n_eighths; e += ${WG}u) {
        var most = vec4<f32>(0.0);
        var total = vec4<f32>(0.0);
        for (var k = 0u; k < 8u; k++) {
            let v = xs[slot(e / 4u * 8u + k)];
            most = max(most, abs(v));
            total += v;
        }
        let largest = max(max(most.x, most.y), max(most.z, most.w));
        let factor = select(0.0, 32512.0 / largest, largest > 0.0);
        let a = xs[slot(2u * e)];
        let b = xs[slot(2u * e + 1u)];
        let qa = vec4<i32>(round(a * factor));
        let qb = vec4<i32>(round(b * factor));
        let ha = (qa + 128) >> vec4<u32>(8u);
        let hb = (qb + 128) >> vec4<u32>(8u);
        let at = (((e >> 2u) & 1u) * 4u + (e & 1u) * 2u + ((e >> 1u) & 1u)) * STRIDE + (e >> 3u);
        x_high[at] = vec2<u32>(packed(ha), packed(hb));
        x_low[at] = vec2<u32>(packed(qa - ha * 256), packed(qb - hb * 256));
        if (e % 2u == 0u) {
            x_sums[e / 2u] = dot(a + b + xs[slot(2u * e + 2u)] + xs[slot(2u * e + 3u)], vec4<f32>(1.0));
        }
        if (e % 4u == 0u) {
            // What is no number stays none.
            let finite = abs(dot(total, vec4<f32>(1.0))) < 3.0e38;
            x_scales[e >> 3u][(e >> 2u) & 1u] = select(dot(total, vec4<f32>(1.0)) * 3.0e38, largest / 32512.0, finite);
        }
    }
    workgroupBarrier();
}

fn long_dot(w: vec2<u32>, at: u32) -> i32 {
    let high = x_high[at];
    let low = x_low[at];
    return (dot4I8Packed(w.x, high.x) + dot4I8Packed(w.y, high.y)) * 256 + dot4I8Packed(w.x, low.x) + dot4I8Packed(w.y, low.y);
}

fn centred(v: u32) -> u32 { // four bytes less 32 each
    return ((v | 0x80808080u) - 0x20202020u) ^ 0x80808080u;
}
