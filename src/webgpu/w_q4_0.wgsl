// Q4_0: 16 bytes of nibbles a unit, then the scales d (f16), one a unit. Low nibbles are elements 0..15.
fn xi${K}(u: u32, j: u32) -> u32 {
    return u * 8u + j;
}
fn values${K}(row: u32, u: u32) -> array<vec4<f32>, 8> {
    let q = w${K}[row + u];
    let d = half_at(w${K}[row + p.w${K}.y + (u >> 3u)][(u >> 1u) & 3u], u);
    var v: array<vec4<f32>, 8>;
#for j 4
    v[${j}] = (low(q[${j}]) - 8.0) * d;
    v[${j} + 4] = (high(q[${j}]) - 8.0) * d;
#end
    return v;
}
