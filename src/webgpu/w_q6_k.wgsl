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

// Pair v: units 2 v and 2 v + 1, 16 columns, which share scales.
struct Pair${K} {
    a: vec4<u32>,
    b: vec4<u32>,
    h: vec4<u32>,
    s: u32,
    d: u32,
}

fn fetch_pair${K}(row: u32, v: u32) -> Pair${K} {
    let block = v >> 2u;
    return Pair${K}(${W}[row + 2u * v], ${W}[row + 2u * v + 1u], ${W}[row + ${P}.y + v], ${W}[row + ${P}.z + block][v & 3u],
        ${W}[row + ${P}.w + (block >> 3u)][(block >> 1u) & 3u]);
}

fn crumbs${K}(h: vec4<u32>, first: u32) -> vec4<u32> {
    return ((h >> vec4<u32>(first)) & vec4<u32>(0x03030303u)) << vec4<u32>(4u);
}

// The product with the staged integers (integers.wgsl): runs of two stretches, `inside` and its neighbour.
fn pair_dot${K}(r: Pair${K}, v: u32, inside: u32) -> f32 {
    let near = vec4<u32>(r.a.xy, r.b.xy);
    let far = vec4<u32>(r.a.zw, r.b.zw);
    let run = inside & 1u;
    let first = inside - run;
    let at = run * STRIDE + first;
    let c = unpack4xI8(r.s);
    let a = c.x * run_dot(low_nibbles(near) | crumbs${K}(r.h, 0u), at)
        + c.y * run_dot(low_nibbles(far) | crumbs${K}(r.h, 2u), 2u * STRIDE + at);
    let b = c.z * run_dot(high_nibbles(near) | crumbs${K}(r.h, 4u), at + 1u)
        + c.w * run_dot(high_nibbles(far) | crumbs${K}(r.h, 6u), 2u * STRIDE + at + 1u);
    let sa = sums_of(first);
    let sb = sums_of(first + 1u);
    let offset_a = c.x * select(sa.x, sa.y, run == 1u) + c.y * select(sa.z, sa.w, run == 1u);
    let offset_b = c.z * select(sb.x, sb.y, run == 1u) + c.w * select(sb.z, sb.w, run == 1u);
    return half_at(r.d, v >> 2u) * (x_scales[first] * (joined(a) - 32.0 * f32(offset_a))
        + x_scales[first + 1u] * (joined(b) - 32.0 * f32(offset_b)));
}
#end
