// F32: a unit is 8 words of 16 bytes.
fn xi${K}(u: u32, j: u32) -> u32 {
    return u * 8u + j;
}
fn values${K}(row: u32, u: u32) -> array<vec4<f32>, 8> {
    let at = row + u * 8u;
    var v: array<vec4<f32>, 8>;
#for j 8
    v[${j}] = bitcast<vec4<f32>>(w${K}[at + ${j}u]);
#end
    return v;
}
