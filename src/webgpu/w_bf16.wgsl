// BF16: a unit is 4 words of 16 bytes, 8 numbers each, every one the high half of an f32.
struct Raw${K} {
    q: array<vec4<u32>, 4>,
}

fn xi${K}(u: u32, j: u32) -> u32 {
    return u * 8u + j;
}

fn fetch${K}(row: u32, u: u32) -> Raw${K} {
    var r: Raw${K};
#for j 4
    r.q[${j}] = ${W}[row + u * 4u + ${j}u];
#end
    return r;
}

fn decode${K}(r: Raw${K}, u: u32) -> array<vec4<f32>, 8> {
    var v: array<vec4<f32>, 8>;
#for j 4
    v[2 * ${j}] = bitcast<vec4<f32>>(vec4<u32>(r.q[${j}].x << 16u, r.q[${j}].x & 0xffff0000u, r.q[${j}].y << 16u, r.q[${j}].y & 0xffff0000u));
    v[2 * ${j} + 1] = bitcast<vec4<f32>>(vec4<u32>(r.q[${j}].z << 16u, r.q[${j}].z & 0xffff0000u, r.q[${j}].w << 16u, r.q[${j}].w & 0xffff0000u));
#end
    return v;
}

fn dot${K}(r: Raw${K}, u: u32, x: array<vec4<f32>, 8>, s: vec4<f32>) -> f32 {
    let v = decode${K}(r, u);
    return dot(v[0], x[0]) + dot(v[1], x[1]) + dot(v[2], x[2]) + dot(v[3], x[3]) + dot(v[4], x[4]) + dot(v[5], x[5])
        + dot(v[6], x[6]) + dot(v[7], x[7]);
}
