// Q4_0: 16 bytes of nibbles a unit, then the scales d (f16), one a unit. Low nibbles are elements 0..15.
struct Raw${K} {
    q: vec4<u32>,
    s: u32,
}

fn xi${K}(u: u32, j: u32) -> u32 {
    return u * 8u + j;
}

fn fetch${K}(row: u32, u: u32) -> Raw${K} {
    var r: Raw${K};
    r.q = ${W}[row + u];
    r.s = ${W}[row + ${P}.y + (u >> 3u)][(u >> 1u) & 3u];
    return r;
}

fn decode${K}(r: Raw${K}, u: u32) -> array<vec4<f32>, 8> {
    var v: array<vec4<f32>, 8>;
    let d = half_at(r.s, u);
#for j 4
    v[${j}] = (low(r.q[${j}]) - 8.0) * d;
    v[${j} + 4] = (high(r.q[${j}]) - 8.0) * d;
#end
    return v;
}

fn dot${K}(r: Raw${K}, u: u32, x: array<vec4<f32>, 8>, s: vec4<f32>) -> f32 {
    let sums = nibble_sums(r.q, x);
    return half_at(r.s, u) * (sums.x + sums.y - 8.0 * (s.x + s.y + s.z + s.w));
}
#if INTEGER

// Pair v: units 2 v and 2 v + 1.
struct Pair${K} {
    a: vec4<u32>,
    b: vec4<u32>,
    s: u32,
}

fn fetch_pair${K}(row: u32, v: u32) -> Pair${K} {
    return Pair${K}(${W}[row + 2u * v], ${W}[row + 2u * v + 1u], ${W}[row + ${P}.y + (v >> 2u)][v & 3u]);
}

// The product with stretch `inside` of the staged integers (integers.wgsl).
fn pair_dot${K}(r: Pair${K}, v: u32, inside: u32) -> f32 {
    let a = run_dot(low_nibbles(r.a), inside) + run_dot(high_nibbles(r.a), STRIDE + inside);
    let b = run_dot(low_nibbles(r.b), 2u * STRIDE + inside) + run_dot(high_nibbles(r.b), 3u * STRIDE + inside);
    let sums = sums_of(inside);
    return x_scales[inside] * dot(halves(r.s), vec2<f32>(joined(a) - 8.0 * f32(sums.x + sums.y), joined(b) - 8.0 * f32(sums.z + sums.w)));
}
#end
