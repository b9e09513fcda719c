// w_k_scales: what Q4_K and Q5_K share: the order of units, and the header of a block with 12 bytes of 6-bit scales and minima.
fn xi${K}(u: u32, j: u32) -> u32 {
    return (u >> 1u) * 16u + (j >> 2u) * 8u + (u & 1u) * 4u + (j & 3u);
}

// The integer scales (xy) and minima (zw) of the two sub-blocks of 64 elements, group g % 4 of a block with this header.
fn steps${K}(head: vec4<u32>, g: u32) -> vec4<i32> {
    let s = (g & 1u) * 16u;
    let second = (g & 2u) != 0u;
    let a = head.y >> s;
    let b = head.z >> s;
    let c = head.w >> s;
    let sc = select(a & 0x3f3fu, (c & 0x0f0fu) | ((a >> 2u) & 0x3030u), second);
    let mn = select(b & 0x3f3fu, ((c >> 4u) & 0x0f0fu) | ((b >> 2u) & 0x3030u), second);
    return vec4<i32>(vec4<u32>(sc & 255u, sc >> 8u, mn & 255u, mn >> 8u));
}

fn scales${K}(head: vec4<u32>, g: u32) -> vec4<f32> {
    return halves(head.x).xxyy * vec4<f32>(steps${K}(head, g));
}
#if INTEGER

// The product of pair v with stretch `inside` of the staged integers, given those of its sub-blocks without scales.
fn scaled_pair${K}(head: vec4<u32>, v: u32, a: vec2<i32>, b: vec2<i32>, inside: u32) -> f32 {
    let s = steps${K}(head, v);
    let sums = sums_of(inside);
    let least = s.z * (sums.x + sums.y) + s.w * (sums.z + sums.w);
    let d = halves(head.x);
    return x_scales[inside] * (d.x * joined(s.x * a + s.y * b) - d.y * f32(least));
}
#end
