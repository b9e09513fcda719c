// Q5_K in the file's blocks of 176 bytes: header as Q4_K, 32 bytes of fifth bits, 128 bytes of nibbles. Units as in Q4_K.
struct Raw${K} {
    q: vec4<u32>,
    h: vec4<u32>,
    head: vec4<u32>,
}

#use w_k_scales K=${K}

fn fetch${K}(row: u32, u: u32) -> Raw${K} {
    var r: Raw${K};
    let at = row + (u >> 3u) * 11u;
    r.head = ${W}[at];
    r.h = ${W}[at + 1u + (u & 1u)];
    r.q = ${W}[at + 3u + (u & 7u)];
    return r;
}

fn decode${K}(r: Raw${K}, u: u32) -> array<vec4<f32>, 8> {
    var v: array<vec4<f32>, 8>;
    let g = (u >> 1u) & 3u;
    let s = scales${K}(r.head, g);
#for j 4
    v[${j}] = bytes_of(with_high_bit(r.q[${j}] & 0x0f0f0f0fu, 4u, r.h[${j}], 2u * g)) * s.x - s.z;
    v[${j} + 4] = bytes_of(with_high_bit((r.q[${j}] >> 4u) & 0x0f0f0f0fu, 4u, r.h[${j}], 2u * g + 1u)) * s.y - s.w;
#end
    return v;
}

fn dot${K}(r: Raw${K}, u: u32, x: array<vec4<f32>, 8>, s: vec4<f32>) -> f32 {
    let g = (u >> 1u) & 3u;
    let c = scales${K}(r.head, g);
    var a = vec4<f32>(0.0);
    var b = vec4<f32>(0.0);
#for j 4
    let h${j} = r.h[${j}] >> (2u * g);
    a += raised_bytes((r.q[${j}] & 0x0f0f0f0fu) | ((h${j} << 4u) & 0x10101010u), 0.0) * x[${j}];
    b += raised_bytes(((r.q[${j}] >> 4u) & 0x0f0f0f0fu) | ((h${j} << 3u) & 0x10101010u), 0.0) * x[${j} + 4];
#end
    return c.x * lowered(a) + c.y * lowered(b) - c.z * (s.x + s.y) - c.w * (s.z + s.w);
}
#if INTEGER

// Pair v: units 2 v and 2 v + 1, which share scales.
struct Pair${K} {
    a: vec4<u32>,
    b: vec4<u32>,
    ha: vec4<u32>,
    hb: vec4<u32>,
    head: vec4<u32>,
}

fn fetch_pair${K}(row: u32, v: u32) -> Pair${K} {
    let at = row + (v >> 2u) * 11u;
    let q = at + 3u + 2u * (v & 3u);
    return Pair${K}(${W}[q], ${W}[q + 1u], ${W}[at + 1u], ${W}[at + 2u], ${W}[at]);
}

// 16 for each byte whose bit is set.
fn sixteens${K}(h: vec4<u32>, bit: u32) -> vec4<u32> {
    return ((h >> vec4<u32>(bit)) & vec4<u32>(0x01010101u)) << vec4<u32>(4u);
}

// The product with stretch `inside` of the staged integers (integers.wgsl).
fn pair_dot${K}(r: Pair${K}, v: u32, inside: u32) -> f32 {
    let bit = 2u * (v & 3u);
    let a = run_dot(low_nibbles(r.a) | sixteens${K}(r.ha, bit), inside)
        + run_dot(low_nibbles(r.b) | sixteens${K}(r.hb, bit), STRIDE + inside);
    let b = run_dot(high_nibbles(r.a) | sixteens${K}(r.ha, bit + 1u), 2u * STRIDE + inside)
        + run_dot(high_nibbles(r.b) | sixteens${K}(r.hb, bit + 1u), 3u * STRIDE + inside);
    return scaled_pair${K}(r.head, v, a, b, inside);
}
#end
