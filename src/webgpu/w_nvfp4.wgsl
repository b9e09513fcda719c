// NVFP4: 16 bytes of nibbles a unit in two groups of 16 elements, then the scales (unsigned E4M3, halved), one byte a group.
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
fn values${K}(row: u32, u: u32) -> array<vec4<f32>, 8> {
    let q = w${K}[row + u];
    let s = w${K}[row + p.w${K}.y + (u >> 3u)][(u >> 1u) & 3u] >> (16u * (u & 1u));
    let d0 = e4m3${K}(s & 255u);
    let d1 = e4m3${K}((s >> 8u) & 255u);
    var v: array<vec4<f32>, 8>;
    v[0] = fp4_levels(q.x) * d0;
    v[1] = fp4_levels(q.y) * d0;
    v[2] = fp4_levels(q.x >> 4u) * d0;
    v[3] = fp4_levels(q.y >> 4u) * d0;
    v[4] = fp4_levels(q.z) * d1;
    v[5] = fp4_levels(q.w) * d1;
    v[6] = fp4_levels(q.z >> 4u) * d1;
    v[7] = fp4_levels(q.w >> 4u) * d1;
    return v;
}
