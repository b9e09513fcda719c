// NVFP4: 16 bytes of nibbles a unit in two groups of 16 elements, then the scales (unsigned E4M3, halved), one byte a group.
struct Raw${K} {
    q: vec4<u32>,
    s: u32,
}

fn xi${K}(u: u32, j: u32) -> u32 {
    return u * 8u + j;
}

fn e4m3${K}(x: u32) -> f32 {
    let e = (x >> 3u) & 15u;
    let m = f32(x & 7u);
    let normal = bitcast<f32>((e + 119u) << 23u) * (1.0 + m * 0.125);
    let value = select(normal, m * 0.0009765625, e == 0u);
    return select(value, 0.0, x == 0u || x == 127u);
}

fn fetch${K}(row: u32, u: u32) -> Raw${K} {
    var r: Raw${K};
    r.q = ${W}[row + u];
    r.s = ${W}[row + ${P}.y + (u >> 3u)][(u >> 1u) & 3u];
    return r;
}

fn decode${K}(r: Raw${K}, u: u32) -> array<vec4<f32>, 8> {
    var v: array<vec4<f32>, 8>;
    let d0 = e4m3${K}((r.s >> (16u * (u & 1u))) & 255u);
    let d1 = e4m3${K}((r.s >> (16u * (u & 1u) + 8u)) & 255u);
    v[0] = fp4_levels(r.q.x) * d0;
    v[1] = fp4_levels(r.q.y) * d0;
    v[2] = fp4_levels(r.q.x >> 4u) * d0;
    v[3] = fp4_levels(r.q.y >> 4u) * d0;
    v[4] = fp4_levels(r.q.z) * d1;
    v[5] = fp4_levels(r.q.w) * d1;
    v[6] = fp4_levels(r.q.z >> 4u) * d1;
    v[7] = fp4_levels(r.q.w >> 4u) * d1;
    return v;
}

fn dot${K}(r: Raw${K}, u: u32, x: array<vec4<f32>, 8>, s: vec4<f32>) -> f32 {
    let v = decode${K}(r, u);
    return dot(v[0], x[0]) + dot(v[1], x[1]) + dot(v[2], x[2]) + dot(v[3], x[3]) + dot(v[4], x[4]) + dot(v[5], x[5])
        + dot(v[6], x[6]) + dot(v[7], x[7]);
}
