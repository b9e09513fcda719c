// Q3_K. Units as in Q2_K, 8 bytes of low bits each; then the high bits, 32 bytes a block (bit 4 n + e of byte l), then 12
// bytes of 6-bit scales a block, then d (f16), one a block.
struct Raw${K} {
    q: vec2<u32>,
    m: vec2<u32>,
    s: vec3<u32>,
    d: u32,
}

fn xi${K}(u: u32, j: u32) -> u32 {
    return (u >> 2u) * 32u + (u & 3u) * 2u + (j >> 1u) * 8u + (j & 1u);
}

fn fetch${K}(row: u32, u: u32) -> Raw${K} {
    var r: Raw${K};
    let q4 = ${W}[row + (u >> 1u)];
    r.q = select(q4.xy, q4.zw, (u & 1u) == 1u);
    let b = u >> 3u;
    let m4 = ${W}[row + ${P}.y + b * 2u + ((u >> 1u) & 1u)];
    r.m = select(m4.xy, m4.zw, (u & 1u) == 1u);
    let first = b * 3u;
    let scales = row + ${P}.z;
    r.s = vec3<u32>(${W}[scales + (first >> 2u)][first & 3u], ${W}[scales + ((first + 1u) >> 2u)][(first + 1u) & 3u],
        ${W}[scales + ((first + 2u) >> 2u)][(first + 2u) & 3u]);
    r.d = ${W}[row + ${P}.w + (b >> 3u)][(b >> 1u) & 3u];
    return r;
}

fn decode${K}(r: Raw${K}, u: u32) -> array<vec4<f32>, 8> {
    var v: array<vec4<f32>, 8>;
    let n = (u >> 2u) & 1u;
    let hl = (u >> 1u) & 1u;
    let d = half_at(r.d, u >> 3u);
#for e 4
    let low${e} = (select(r.s.x, r.s.y, ${e} > 1) >> (8u * ((2u * ${e}u + hl) & 3u) + 4u * n)) & 15u;
    let high${e} = (r.s.z >> (8u * (2u * (${e}u & 1u) + hl) + 2u * (2u * n + ${e}u / 2u))) & 3u;
    let d${e} = d * (f32(low${e} | (high${e} << 4u)) - 32.0);
    v[2 * ${e}] = (bytes_of(with_high_bit((r.q.x >> (2u * ${e}u)) & 0x03030303u, 2u, r.m.x, 4u * n + ${e}u)) - 4.0) * d${e};
    v[2 * ${e} + 1] = (bytes_of(with_high_bit((r.q.y >> (2u * ${e}u)) & 0x03030303u, 2u, r.m.y, 4u * n + ${e}u)) - 4.0) * d${e};
#end
    return v;
}

fn dot${K}(r: Raw${K}, u: u32, x: array<vec4<f32>, 8>, s: vec4<f32>) -> f32 {
    let v = decode${K}(r, u);
    return dot(v[0], x[0]) + dot(v[1], x[1]) + dot(v[2], x[2]) + dot(v[3], x[3]) + dot(v[4], x[4]) + dot(v[5], x[5])
        + dot(v[6], x[6]) + dot(v[7], x[7]);
}
