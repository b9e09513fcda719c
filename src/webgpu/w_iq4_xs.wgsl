// IQ4_XS: 16 bytes of nibbles a unit; for each block of 8 units a word d (f16) | scales_h, and a word scales_l.
fn xi${K}(u: u32, j: u32) -> u32 {
    return u * 8u + j;
}
fn values${K}(row: u32, u: u32) -> array<vec4<f32>, 8> {
    let q = w${K}[row + u];
    let b = u >> 3u;
    let i = u & 7u;
    let dh = w${K}[row + p.w${K}.y + (b >> 2u)][b & 3u];
    let l = w${K}[row + p.w${K}.z + (b >> 2u)][b & 3u];
    let scale = ((l >> (4u * i)) & 15u) | (((dh >> (16u + 2u * i)) & 3u) << 4u);
    let d = halves(dh).x * (f32(scale) - 32.0);
    var v: array<vec4<f32>, 8>;
#for j 4
    v[${j}] = iq4_levels(q[${j}]) * d;
    v[${j} + 4] = iq4_levels(q[${j}] >> 4u) * d;
#end
    return v;
}
