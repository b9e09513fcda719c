// Q2_K. A unit is 8 columns l of one half of a block times 4 groups of 2 bits: 8 bytes. Then the scale bytes, one word
// (4 groups) for two units, then d and dmin (f16), one word a block.
fn xi${K}(u: u32, j: u32) -> u32 {
    return (u >> 2u) * 32u + (u & 3u) * 2u + (j >> 1u) * 8u + (j & 1u);
}
fn values${K}(row: u32, u: u32) -> array<vec4<f32>, 8> {
    let at = row + (u >> 1u);
    let q = select(w${K}[at].xy, w${K}[at].zw, (u & 1u) == 1u);
    let s = w${K}[row + p.w${K}.y + (u >> 3u)][(u >> 1u) & 3u];
    let b = u >> 3u;
    let dm = halves(w${K}[row + p.w${K}.z + (b >> 2u)][b & 3u]);
    let scale = low(s) * dm.x;
    let minimum = high(s) * dm.y;
    var v: array<vec4<f32>, 8>;
#for e 4
    v[2 * ${e}] = two_bits(q.x, 2u * ${e}u) * scale[${e}] - minimum[${e}];
    v[2 * ${e} + 1] = two_bits(q.y, 2u * ${e}u) * scale[${e}] - minimum[${e}];
#end
    return v;
}
