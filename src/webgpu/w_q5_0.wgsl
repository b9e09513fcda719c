// Q5_0: 16 bytes of nibbles a unit, a word of fifth bits a unit, the scales d (f16).
struct Raw${K} {
    q: vec4<u32>,
    h: u32,
    s: u32,
}

fn xi${K}(u: u32, j: u32) -> u32 {
    return u * 8u + j;
}

fn fetch${K}(row: u32, u: u32) -> Raw${K} {
    var r: Raw${K};
    r.q = ${W}[row + u];
    r.h = ${W}[row + ${P}.y + (u >> 2u)][u & 3u];
    r.s = ${W}[row + ${P}.z + (u >> 3u)][(u >> 1u) & 3u];
    return r;
}

fn decode${K}(r: Raw${K}, u: u32) -> array<vec4<f32>, 8> {
    var v: array<vec4<f32>, 8>;
    let d = half_at(r.s, u);
    let m = -16.0 * d;
#for j 4
    v[${j}] = (low(r.q[${j}]) + fifth_bits(r.h, 4u * ${j}u)) * d + m;
    v[${j} + 4] = (high(r.q[${j}]) + fifth_bits(r.h, 4u * ${j}u + 16u)) * d + m;
#end
    return v;
}

fn dot${K}(r: Raw${K}, u: u32, x: array<vec4<f32>, 8>, s: vec4<f32>) -> f32 {
    let v = decode${K}(r, u);
    return dot(v[0], x[0]) + dot(v[1], x[1]) + dot(v[2], x[2]) + dot(v[3], x[3]) + dot(v[4], x[4]) + dot(v[5], x[5])
        + dot(v[6], x[6]) + dot(v[7], x[7]);
}
