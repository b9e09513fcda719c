// BF16: a unit is 4 words of 16 bytes, 8 numbers each, every one the high half of an f32.
fn xi${K}(u: u32, j: u32) -> u32 {
    return u * 8u + j;
}
fn pair${K}(w: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<f32>(w << 16u), bitcast<f32>(w & 0xffff0000u));
}
fn values${K}(row: u32, u: u32) -> array<vec4<f32>, 8> {
    let at = row + u * 4u;
    var v: array<vec4<f32>, 8>;
#for j 4
    let q${j} = w${K}[at + ${j}u];
    v[2u * ${j}u] = vec4<f32>(pair${K}(q${j}.x), pair${K}(q${j}.y));
    v[2u * ${j}u + 1u] = vec4<f32>(pair${K}(q${j}.z), pair${K}(q${j}.w));
#end
    return v;
}
