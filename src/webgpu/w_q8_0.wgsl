// Q8_0: 32 signed bytes a unit, then the scales d (f16), one a unit.
struct Raw${K} {
    a: vec4<u32>,
    b: vec4<u32>,
    s: u32,
}

fn xi${K}(u: u32, j: u32) -> u32 {
    return u * 8u + j;
}

fn fetch${K}(row: u32, u: u32) -> Raw${K} {
    var r: Raw${K};
    r.a = ${W}[row + 2u * u];
    r.b = ${W}[row + 2u * u + 1u];
    r.s = ${W}[row + ${P}.y + (u >> 3u)][(u >> 1u) & 3u];
    return r;
}

fn decode${K}(r: Raw${K}, u: u32) -> array<vec4<f32>, 8> {
    var v: array<vec4<f32>, 8>;
    let d = half_at(r.s, u);
#for j 4
    v[${j}] = signed_bytes(r.a[${j}]) * d;
    v[${j} + 4] = signed_bytes(r.b[${j}]) * d;
#end
    return v;
}

fn dot${K}(r: Raw${K}, u: u32, x: array<vec4<f32>, 8>, s: vec4<f32>) -> f32 {
    var sum = vec4<f32>(0.0);
#for j 4
    sum += raised_bytes(r.a[${j}] ^ 0x80808080u, 128.0) * x[${j}];
    sum += raised_bytes(r.b[${j}] ^ 0x80808080u, 128.0) * x[${j} + 4];
#end
    return half_at(r.s, u) * lowered(sum);
}
#if INTEGER

// The product with the staged integers, unit `inside` of them (integers.wgsl).
fn integer_dot${K}(r: Raw${K}, u: u32, inside: u32) -> f32 {
    let first = (inside & 1u) * 4u * STRIDE + (inside >> 1u);
    let sum = long_dot(r.a.xy, first) + long_dot(r.a.zw, first + 2u * STRIDE) + long_dot(r.b.xy, first + STRIDE)
        + long_dot(r.b.zw, first + 3u * STRIDE);
    return half_at(r.s, u) * x_scales[inside >> 1u][inside & 1u] * f32(sum);
}
#end
