// Q4_1: 16 bytes of nibbles a unit, then d and m (f16), one word a unit.
fn xi${K}(u: u32, j: u32) -> u32 {
    return u * 8u + j;
}
fn values${K}(row: u32, u: u32) -> array<vec4<f32>, 8> {
    let q = w${K}[row + u];
    let dm = halves(w${K}[row + p.w${K}.y + (u >> 2u)][u & 3u]);
    var v: array<vec4<f32>, 8>;
#for j 4
    v[${j}] = low(q[${j}]) * dm.x + dm.y;
    v[${j} + 4] = high(q[${j}]) * dm.x + dm.y;
#end
    return v;
}
