// Q3_K. Units as in Q2_K, 8 bytes of low bits each; then the high bits, 32 bytes a block (bit 4 n + e of byte l), then 12
// bytes of 6-bit scales a block, then d (f16), one a block.
fn xi${K}(u: u32, j: u32) -> u32 {
    return (u >> 2u) * 32u + (u & 3u) * 2u + (j >> 1u) * 8u + (j & 1u);
}
fn values${K}(row: u32, u: u32) -> array<vec4<f32>, 8> {
    let b = u >> 3u;
    let n = (u >> 2u) & 1u;
    let hl = (u >> 1u) & 1u;
    let at = row + (u >> 1u);
    let q = select(w${K}[at].xy, w${K}[at].zw, (u & 1u) == 1u);
    let mask_at = row + p.w${K}.y + b * 2u + hl;
    let m = select(w${K}[mask_at].xy, w${K}[mask_at].zw, (u & 1u) == 1u);
    let first = b * 3u;
    let scales = row + p.w${K}.z;
    let s0 = w${K}[scales + (first >> 2u)][first & 3u];
    let s1 = w${K}[scales + ((first + 1u) >> 2u)][(first + 1u) & 3u];
    let s2 = w${K}[scales + ((first + 2u) >> 2u)][(first + 2u) & 3u];
    let d = half_at(w${K}[row + p.w${K}.w + (b >> 3u)][(b >> 1u) & 3u], b);
    var v: array<vec4<f32>, 8>;
#for e 4
    let low${e} = (select(s0, s1, ${e} > 1) >> (8u * ((2u * ${e}u + hl) & 3u) + 4u * n)) & 15u;
    let high${e} = (s2 >> (8u * (2u * (${e}u & 1u) + hl) + 2u * (2u * n + ${e}u / 2u))) & 3u;
    let d${e} = d * (f32(low${e} | (high${e} << 4u)) - 32.0);
    v[2 * ${e}] = (two_bits(q.x, 2u * ${e}u) + 4.0 * bit_of_bytes(m.x, 4u * n + ${e}u) - 4.0) * d${e};
    v[2 * ${e} + 1] = (two_bits(q.y, 2u * ${e}u) + 4.0 * bit_of_bytes(m.y, 4u * n + ${e}u) - 4.0) * d${e};
#end
    return v;
}
