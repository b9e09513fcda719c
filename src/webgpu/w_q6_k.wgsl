// Q6_K. A unit is 8 columns l of one half of a block times 4 groups: 16 bytes of nibbles (ql[l], then ql[l + 32]), 8 bytes of
// high bits, a word with the 4 groups' scales for two units, and d (f16) for each block.
struct Raw${K} {
    q: vec4<u32>,
    h: vec2<u32>,
    s: u32,
    d: u32,
}

fn xi${K}(u: u32, j: u32) -> u32 {
    return (u >> 2u) * 32u + (u & 3u) * 2u + (j >> 1u) * 8u + (j & 1u);
}

fn fetch${K}(row: u32, u: u32) -> Raw${K} {
    var r: Raw${K};
    r.q = ${W}[row + u];
    let h4 = ${W}[row + ${P}.y + (u >> 1u)];
    r.h = select(h4.xy, h4.zw, (u & 1u) == 1u);
    r.s = ${W}[row + ${P}.z + (u >> 3u)][(u >> 1u) & 3u];
    let b = u >> 3u;
    r.d = ${W}[row + ${P}.w + (b >> 3u)][(b >> 1u) & 3u];
    return r;
}

fn decode${K}(r: Raw${K}, u: u32) -> array<vec4<f32>, 8> {
    var v: array<vec4<f32>, 8>;
    let scale = signed_bytes(r.s) * half_at(r.d, u >> 3u);
    v[0] = (bytes_of(six_bits(r.q.x, r.h.x, 0u)) - 32.0) * scale.x;
    v[1] = (bytes_of(six_bits(r.q.y, r.h.y, 0u)) - 32.0) * scale.x;
    v[2] = (bytes_of(six_bits(r.q.z, r.h.x, 2u)) - 32.0) * scale.y;
    v[3] = (bytes_of(six_bits(r.q.w, r.h.y, 2u)) - 32.0) * scale.y;
    v[4] = (bytes_of(six_bits(r.q.x >> 4u, r.h.x, 4u)) - 32.0) * scale.z;
    v[5] = (bytes_of(six_bits(r.q.y >> 4u, r.h.y, 4u)) - 32.0) * scale.z;
    v[6] = (bytes_of(six_bits(r.q.z >> 4u, r.h.x, 6u)) - 32.0) * scale.w;
    v[7] = (bytes_of(six_bits(r.q.w >> 4u, r.h.y, 6u)) - 32.0) * scale.w;
    return v;
}

fn dot${K}(r: Raw${K}, u: u32, x: array<vec4<f32>, 8>, s: vec4<f32>) -> f32 {
    let a = raised_bytes(six_bits(r.q.x, r.h.x, 0u), 32.0) * x[0] + raised_bytes(six_bits(r.q.y, r.h.y, 0u), 32.0) * x[1];
    let b = raised_bytes(six_bits(r.q.z, r.h.x, 2u), 32.0) * x[2] + raised_bytes(six_bits(r.q.w, r.h.y, 2u), 32.0) * x[3];
    let c = raised_bytes(six_bits(r.q.x >> 4u, r.h.x, 4u), 32.0) * x[4] + raised_bytes(six_bits(r.q.y >> 4u, r.h.y, 4u), 32.0) * x[5];
    let d = raised_bytes(six_bits(r.q.z >> 4u, r.h.x, 6u), 32.0) * x[6] + raised_bytes(six_bits(r.q.w >> 4u, r.h.y, 6u), 32.0) * x[7];
    return half_at(r.d, u >> 3u) * dot(signed_bytes(r.s), vec4<f32>(lowered(a), lowered(b), lowered(c), lowered(d)));
}
#if INTEGER

// The product with the staged integers, unit `inside` of them (integers.wgsl).
fn integer_dot${K}(r: Raw${K}, u: u32, inside: u32) -> f32 {
    let group = (inside >> 2u) * 2u;
    let first = ((inside & 1u) * 2u + ((inside >> 1u) & 1u)) * STRIDE + group;
    let a = long_dot(vec2<u32>(centred(six_bits(r.q.x, r.h.x, 0u)), centred(six_bits(r.q.y, r.h.y, 0u))), first);
    let b = long_dot(vec2<u32>(centred(six_bits(r.q.z, r.h.x, 2u)), centred(six_bits(r.q.w, r.h.y, 2u))), first + 4u * STRIDE);
    let c = long_dot(vec2<u32>(centred(six_bits(r.q.x >> 4u, r.h.x, 4u)), centred(six_bits(r.q.y >> 4u, r.h.y, 4u))), first + 1u);
    let d = long_dot(vec2<u32>(centred(six_bits(r.q.z >> 4u, r.h.x, 6u)), centred(six_bits(r.q.w >> 4u, r.h.y, 6u))),
        first + 4u * STRIDE + 1u);
    let scales = vec4<f32>(x_scales[group], x_scales[group + 1u]) * signed_bytes(r.s);
    return half_at(r.d, u >> 3u) * dot(scales, vec4<f32>(f32(a), f32(b), f32(c), f32(d)));
}
#end
