// MXFP4: 16 bytes of nibbles a unit (twice the FP4 value), then the exponents, one byte a unit: 2^(e - 128).
fn xi${K}(u: u32, j: u32) -> u32 {
    return u * 8u + j;
}
fn values${K}(row: u32, u: u32) -> array<vec4<f32>, 8> {
    let q = w${K}[row + u];
    let e = (w${K}[row + p.w${K}.y + (u >> 4u)][(u >> 2u) & 3u] >> (8u * (u & 3u))) & 255u;
    let d = bitcast<f32>(select((e - 1u) << 23u, 0x00200000u << e, e < 2u));
    var v: array<vec4<f32>, 8>;
#for j 4
    v[${j}] = fp4_levels(q[${j}]) * d;
    v[${j} + 4] = fp4_levels(q[${j}] >> 4u) * d;
#end
    return v;
}
