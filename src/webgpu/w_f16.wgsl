// F16: a unit is 4 words of 16 bytes, 8 halves each.
fn xi${K}(u: u32, j: u32) -> u32 {
    return u * 8u + j;
}
fn values${K}(row: u32, u: u32) -> array<vec4<f32>, 8> {
    let at = row + u * 4u;
    var v: array<vec4<f32>, 8>;
#for j 4
    let q${j} = w${K}[at + ${j}u];
    v[2u * ${j}u] = vec4<f32>(halves(q${j}.x), halves(q${j}.y));
    v[2u * ${j}u + 1u] = vec4<f32>(halves(q${j}.z), halves(q${j}.w));
#end
    return v;
}
