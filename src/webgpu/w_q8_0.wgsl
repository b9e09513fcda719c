// Q8_0: 32 signed bytes a unit, then the scales d (f16), one a unit.
fn xi${K}(u: u32, j: u32) -> u32 {
    return u * 8u + j;
}
fn values${K}(row: u32, u: u32) -> array<vec4<f32>, 8> {
    let a = w${K}[row + 2u * u];
    let b = w${K}[row + 2u * u + 1u];
    let d = half_at(w${K}[row + p.w${K}.y + (u >> 3u)][(u >> 1u) & 3u], u);
    var v: array<vec4<f32>, 8>;
#for j 4
    v[${j}] = signed_bytes(a[${j}]) * d;
    v[${j} + 4] = signed_bytes(b[${j}]) * d;
#end
    return v;
}
