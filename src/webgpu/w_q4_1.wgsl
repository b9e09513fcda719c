// Q4_1: 16 bytes of nibbles a unit, then d and m (f16), one word a unit.
struct Raw${K} {
    q: vec4<u32>,
    s: u32,
}

fn xi${K}(u: u32, j: u32) -> u32 {
    return u * 8u + j;
}

fn fetch${K}(row: u32, u: u32) -> Raw${K} {
    var r: Raw${K};
    r.q = ${W}[row + u];
    r.s = ${W}[row + ${P}.y + (u >> 2u)][u & 3u];
    return r;
}

fn decode${K}(r: Raw${K}, u: u32) -> array<vec4<f32>, 8> {
    var v: array<vec4<f32>, 8>;
    let dm = halves(r.s);
#for j 4
    v[${j}] = low(r.q[${j}]) * dm.x + dm.y;
    v[${j} + 4] = high(r.q[${j}]) * dm.x + dm.y;
#end
    return v;
}

fn dot${K}(r: Raw${K}, u: u32, x: array<vec4<f32>, 8>, s: vec4<f32>) -> f32 {
    let dm = halves(r.s);
    let sums = nibble_sums(r.q, x);
    return dm.x * (sums.x + sums.y) + dm.y * (s.x + s.y + s.z + s.w);
}
