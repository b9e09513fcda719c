// Q2_K. A unit is 8 columns l of one half of a block times 4 groups of 2 bits: 8 bytes. Then the scale bytes, one word
// (4 groups) for two units, then d and dmin (f16), one word a block.
struct Raw${K} {
    q: vec2<u32>,
    s: u32,
    d: u32,
}

fn xi${K}(u: u32, j: u32) -> u32 {
    return (u >> 2u) * 32u + (u & 3u) * 2u + (j >> 1u) * 8u + (j & 1u);
}

fn fetch${K}(row: u32, u: u32) -> Raw${K} {
    var r: Raw${K};
    let q4 = ${W}[row + (u >> 1u)];
    r.q = select(q4.xy, q4.zw, (u & 1u) == 1u);
    r.s = ${W}[row + ${P}.y + (u >> 3u)][(u >> 1u) & 3u];
    let b = u >> 3u;
    r.d = ${W}[row + ${P}.z + (b >> 2u)][b & 3u];
    return r;
}

fn decode${K}(r: Raw${K}, u: u32) -> array<vec4<f32>, 8> {
    var v: array<vec4<f32>, 8>;
    let dm = halves(r.d);
    let scale = low(r.s) * dm.x;
    let minimum = high(r.s) * dm.y;
#for e 4
    v[2 * ${e}] = two_bits(r.q.x, 2u * ${e}u) * scale[${e}] - minimum[${e}];
    v[2 * ${e} + 1] = two_bits(r.q.y, 2u * ${e}u) * scale[${e}] - minimum[${e}];
#end
    return v;
}

fn dot${K}(r: Raw${K}, u: u32, x: array<vec4<f32>, 8>, s: vec4<f32>) -> f32 {
    let v = decode${K}(r, u);
    return dot(v[0], x[0]) + dot(v[1], x[1]) + dot(v[2], x[2]) + dot(v[3], x[3]) + dot(v[4], x[4]) + dot(v[5], x[5])
        + dot(v[6], x[6]) + dot(v[7], x[7]);
}
