// Q8_0: 32 signed bytes a unit, then the scales d (f16), one a unit.
struct Raw${K} {
    a: vec4<u32>,
    b: vec4<u32>,
    s: u32,
}

fn xi${K}(u: u32, j: u32) -> u32 {
    return u * 8u + j;
}

fn fetch${K}(row: u32, u: u32) -> Raw${K} {
    var r: Raw${K};
    r.a = ${W}[row + 2u * u];
    r.b = ${W}[row + 2u * u + 1u];
    r.s = ${W}[row + ${P}.y + (u >> 3u)][(u >> 1u) & 3u];
    return r;
}

fn decode${K}(r: Raw${K}, u: u32) -> array<vec4<f32>, 8> {
    var v: array<vec4<f32>, 8>;
    let d = half_at(r.s, u);
#for j 4
    v[${j}] = signed_bytes(r.a[${j}]) * d;
    v[${j} + 4] = signed_bytes(r.b[${j}]) * d;
#end
    return v;
}

fn dot${K}(r: Raw${K}, u: u32, x: array<vec4<f32>, 8>, s: vec4<f32>) -> f32 {
    var sum = vec4<f32>(0.0);
#for j 4
    sum += raised_bytes(r.a[${j}] ^ 0x80808080u, 128.0) * x[${j}];
    sum += raised_bytes(r.b[${j}] ^ 0x80808080u, 128.0) * x[${j} + 4];
#end
    return half_at(r.s, u) * lowered(sum);
}
#if INTEGER

// Pair v: units 2 v and 2 v + 1.
struct Pair${K} {
    a: vec4<u32>,
    b: vec4<u32>,
    c: vec4<u32>,
    d: vec4<u32>,
    s: u32,
}

fn fetch_pair${K}(row: u32, v: u32) -> Pair${K} {
    let at = row + 4u * v;
    return Pair${K}(${W}[at], ${W}[at + 1u], ${W}[at + 2u], ${W}[at + 3u], ${W}[row + ${P}.y + (v >> 2u)][v & 3u]);
}

// The product with stretch `inside` of the staged integers (integers.wgsl).
fn pair_dot${K}(r: Pair${K}, v: u32, inside: u32) -> f32 {
    let a = run_dot(r.a, inside) + run_dot(r.b, STRIDE + inside);
    let b = run_dot(r.c, 2u * STRIDE + inside) + run_dot(r.d, 3u * STRIDE + inside);
    return x_scales[inside] * dot(halves(r.s), vec2<f32>(joined(a), joined(b)));
}
#end
