// Q6_K. A unit is 8 columns l of one half of a block times 4 groups: 16 bytes of nibbles (ql[l], then ql[l + 32]), 8 bytes of
// high bits, a word with the 4 groups' scales for two units, and d (f16) for each block.
fn xi${K}(u: u32, j: u32) -> u32 {
    return (u >> 2u) * 32u + (u & 3u) * 2u + (j >> 1u) * 8u + (j & 1u);
}
fn values${K}(row: u32, u: u32) -> array<vec4<f32>, 8> {
    let q = w${K}[row + u];
    let h4 = w${K}[row + p.w${K}.y + (u >> 1u)];
    let h = select(h4.xy, h4.zw, (u & 1u) == 1u);
    let s = w${K}[row + p.w${K}.z + (u >> 3u)][(u >> 1u) & 3u];
    let b = u >> 3u;
    let d = half_at(w${K}[row + p.w${K}.w + (b >> 3u)][(b >> 1u) & 3u], b);
    let scale = signed_bytes(s) * d;
    var v: array<vec4<f32>, 8>;
    v[0] = (six_bits(q.x, h.x, 0u) - 32.0) * scale.x;
    v[1] = (six_bits(q.y, h.y, 0u) - 32.0) * scale.x;
    v[2] = (six_bits(q.z, h.x, 2u) - 32.0) * scale.y;
    v[3] = (six_bits(q.w, h.y, 2u) - 32.0) * scale.y;
    v[4] = (six_bits(q.x >> 4u, h.x, 4u) - 32.0) * scale.z;
    v[5] = (six_bits(q.y >> 4u, h.y, 4u) - 32.0) * scale.z;
    v[6] = (six_bits(q.z >> 4u, h.x, 6u) - 32.0) * scale.w;
    v[7] = (six_bits(q.w >> 4u, h.y, 6u) - 32.0) * scale.w;
    return v;
}
