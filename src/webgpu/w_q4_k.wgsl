// Q4_K in the file's blocks of 144 bytes: d, dmin (f16) and 12 bytes of scales, then 128 bytes of nibbles. Unit 2 g + h of a
// block is 16 bytes: low nibbles are elements 64 g + 16 h + 0..15, high ones 32 further.
struct Raw${K} {
    q: vec4<u32>,
    head: vec4<u32>,
}

#use w_k_scales K=${K}

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

// The product with stretch `inside` of the staged integers (integers.wgsl).
fn pair_dot${K}(r: Pair${K}, v: u32, inside: u32) -> f32 {
    let a = run_dot(low_nibbles(r.a), inside) + run_dot(low_nibbles(r.b), STRIDE + inside);
    let b = run_dot(high_nibbles(r.a), 2u * STRIDE + inside) + run_dot(high_nibbles(r.b), 3u * STRIDE + inside);
    return scaled_pair${K}(r.head, v, a, b, inside);
}
#end
