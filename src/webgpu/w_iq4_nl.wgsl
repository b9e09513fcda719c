// IQ4_NL: 16 bytes of nibbles a unit that look up 16 levels, then the scales d (f16).
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
    r.s = ${W}[row + ${P}.y + (u >> 3u)][(u >> 1u) & 3u];
    return r;
}

fn decode${K}(r: Raw${K}, u: u32) -> array<vec4<f32>, 8> {
    var v: array<vec4<f32>, 8>;
    let d = half_at(r.s, u);
#for j 4
    v[${j}] = iq4_levels(r.q[${j}]) * d;
    v[${j} + 4] = iq4_levels(r.q[${j}] >> 4u) * d;
#end
    return v;
}

fn dot${K}(r: Raw${K}, u: u32, x: array<vec4<f32>, 8>, s: vec4<f32>) -> f32 {
    let v = decode${K}(r, u);
    return dot(v[0], x[0]) + dot(v[1], x[1]) + dot(v[2], x[2]) + dot(v[3], x[3]) + dot(v[4], x[4]) + dot(v[5], x[5])
        + dot(v[6], x[6]) + dot(v[7], x[7]);
}
