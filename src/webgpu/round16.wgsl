// round16: numbers as 16-bit integers in two bytes, with a scale for several: x = scale (256 high + low).

// The largest magnitude of four numbers. What is no number stays none: it makes the scale infinite.
fn magnitude(v: vec4<f32>) -> f32 {
    let a = abs(v);
    return select(3.4e38, max(max(a.x, a.y), max(a.z, a.w)), abs(dot(v, vec4<f32>(0.001))) < 3.0e38);
}

// Beside 1.5 2^23 a float has no fraction, and its last bits are the integer.
fn rounded(v: vec4<f32>, largest: f32) -> vec4<u32> {
    return bitcast<vec4<u32>>(v * select(0.0, 32512.0 / largest, largest > 1e-30) + 12582912.0);
}

fn high_bytes(bits: vec4<u32>) -> u32 {
    return pack4xU8(((bits + 128u) >> vec4<u32>(8u)) & vec4<u32>(255u));
}

fn low_bytes(bits: vec4<u32>) -> u32 {
    return pack4xU8(bits & vec4<u32>(255u));
}

fn scale_of(largest: f32) -> f32 {
    return select(largest / 32512.0, largest * largest, largest > 3.0e38);
}
