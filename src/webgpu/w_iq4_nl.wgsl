// IQ4_NL: 16 bytes of nibbles a unit that look up 16 levels, then the scales d (f16).
fn xi${K}(u: u32, j: u32) -> u32 {
    return u * 8u + j;
}
fn values${K}(row: u32, u: u32) -> array<vec4<f32>, 8> {
    let q = w${K}[row + u];
    let d = half_at(w${K}[row + p.w${K}.y + (u >> 3u)][(u >> 1u) & 3u], u);
    var v: array<vec4<f32>, 8>;
#for j 4
    v[${j}] = iq4_levels(q[${j}]) * d;
    v[${j} + 4] = iq4_levels(q[${j}] >> 4u) * d;
#end
    return v;
}
