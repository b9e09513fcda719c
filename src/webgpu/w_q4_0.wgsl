// Q4_0: 16 bytes of nibbles a unit, then the scales d (f16), one a unit. Low nibbles are elements 0..15.
struct Raw${K} {
    q: vec4<u32>,
    s: u32,
}

fn xi${K}(u: u32, j: u32) -> u32 {
    return u * 8u + j;
}

fn fetch${K}(row: u32, u: u32) -> Raw${K} {
    var r: Raw${K};
    r.q = ${W}[row + u];
    r.s = ${W}[row + ${P}.y + (u >> 3u)][(u >> 1u) & 3u];
    return r;
}

fn decode${K}(r: Raw${K}, u: u32) -> array<vec4<f32>, 8> {
    var v: array<vec4<f32>, 8>;
    let d = half_at(r.s, u);
#for j 4
    v[${j}] = (low(r.q[${j}]) - 8.0) * d;
    v[${j} + 4] = (high(r.q[${j}]) - 8.0) * d;
#end
    return v;
}

fn dot${K}(r: Raw${K}, u: u32, x: array<vec4<f32>, 8>, s: vec4<f32>) -> f32 {
    let sums = nibble_sums(r.q, x);
    return half_at(r.s, u) * (sums.x + sums.y - 8.0 * (s.x + s.y + s.z + s.w));
}
#if INTEGER

// The product with the staged integers, unit `inside` of them (integers.wgsl).
fn integer_dot${K}(r: Raw${K}, u: u32, inside: u32) -> f32 {
    let low = r.q & vec4<u32>(0x0f0f0f0fu);
    let high = (r.q >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
    let first = (inside & 1u) * 4u * STRIDE + (inside >> 1u);
    let sum = long_dot(low.xy, first) + long_dot(low.zw, first + 2u * STRIDE) + long_dot(high.xy, first + STRIDE)
        + long_dot(high.zw, first + 3u * STRIDE);
    let scale = x_scales[inside >> 1u][inside & 1u];
    return half_at(r.s, u) * (scale * f32(sum) - 8.0 * (x_sums[2u * inside] + x_sums[2u * inside + 1u]));
}
#end
