// Q4_K in the file's blocks of 144 bytes: d, dmin (f16) and 12 bytes of scales, then 128 bytes of nibbles. Unit 2 g + h of a
// block is 16 bytes: low nibbles are elements 64 g + 16 h + 0..15, high ones 32 further.
struct Raw${K} {
    q: vec4<u32>,
    head: vec4<u32>,
}

fn xi${K}(u: u32, j: u32) -> u32 {
    return (u >> 1u) * 16u + (j >> 2u) * 8u + (u & 1u) * 4u + (j & 3u);
}

// The scales (xy) and minima (zw) of the two sub-blocks of 64 elements, group g of a block with this header.
fn scales${K}(head: vec4<u32>, g: u32) -> vec4<f32> {
    let s = (g & 1u) * 16u;
    let second = g >= 2u;
    let a = head.y >> s;
    let b = head.z >> s;
    let c = head.w >> s;
    let sc = select(a & 0x3f3fu, (c & 0x0f0fu) | ((a >> 2u) & 0x3030u), second);
    let mn = select(b & 0x3f3fu, ((c >> 4u) & 0x0f0fu) | ((b >> 2u) & 0x3030u), second);
    let d = halves(head.x);
    return vec4<f32>(d.x * f32(sc & 255u), d.x * f32(sc >> 8u), d.y * f32(mn & 255u), d.y * f32(mn >> 8u));
}

fn fetch${K}(row: u32, u: u32) -> Raw${K} {
    var r: Raw${K};
    let at = row + (u >> 3u) * 9u;
    r.head = ${W}[at];
    r.q = ${W}[at + 1u + (u & 7u)];
    return r;
}

fn decode${K}(r: Raw${K}, u: u32) -> array<vec4<f32>, 8> {
    var v: array<vec4<f32>, 8>;
    let s = scales${K}(r.head, (u >> 1u) & 3u);
#for j 4
    v[${j}] = low(r.q[${j}]) * s.x - s.z;
    v[${j} + 4] = high(r.q[${j}]) * s.y - s.w;
#end
    return v;
}

fn dot${K}(r: Raw${K}, u: u32, x: array<vec4<f32>, 8>, s: vec4<f32>) -> f32 {
    let c = scales${K}(r.head, (u >> 1u) & 3u);
    let sums = nibble_sums(r.q, x);
    return c.x * sums.x + c.y * sums.y - c.z * (s.x + s.y) - c.w * (s.z + s.w);
}
#if INTEGER

// Pair v: units 2 v and 2 v + 1, which share scales.
struct Pair${K} {
    a: vec4<u32>,
    b: vec4<u32>,
    head: vec4<u32>,
}

fn fetch_pair${K}(row: u32, v: u32) -> Pair${K} {
    let at = row + (v >> 2u) * 9u;
    let q = at + 1u + 2u * (v & 3u);
    return Pair${K}(${W}[q], ${W}[q + 1u], ${W}[at]);
}

// The integer scales (xy) and minima (zw) of the two sub-blocks of pair v.
fn steps${K}(head: vec4<u32>, v: u32) -> vec4<i32> {
    let s = (v & 1u) * 16u;
    let second = (v & 2u) != 0u;
    let a = head.y >> s;
    let b = head.z >> s;
    let c = head.w >> s;
    let sc = select(a & 0x3f3fu, (c & 0x0f0fu) | ((a >> 2u) & 0x3030u), second);
    let mn = select(b & 0x3f3fu, ((c >> 4u) & 0x0f0fu) | ((b >> 2u) & 0x3030u), second);
    return vec4<i32>(vec4<u32>(sc & 255u, sc >> 8u, mn & 255u, mn >> 8u));
}

// The product with stretch `inside` of the staged integers (integers.wgsl).
fn pair_dot${K}(r: Pair${K}, v: u32, inside: u32) -> f32 {
    let a = run_dot(low_nibbles(r.a), inside) + run_dot(low_nibbles(r.b), STRIDE + inside);
    let b = run_dot(high_nibbles(r.a), 2u * STRIDE + inside) + run_dot(high_nibbles(r.b), 3u * STRIDE + inside);
    let s = steps${K}(r.head, v);
    let sums = sums_of(inside);
    let least = s.z * (sums.x + sums.y) + s.w * (sums.z + sums.w);
    let d = halves(r.head.x);
    return x_scales[inside] * (d.x * joined(s.x * a + s.y * b) - d.y * f32(least));
}
#end
