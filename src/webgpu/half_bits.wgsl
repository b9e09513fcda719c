// half_bits: numbers that are not negative as halves, also small ones, which the conversion of some devices makes zero. What is too
// large, or no number, becomes infinite, so that it is noticed.
fn half_bits(x: f32) -> u32 {
    let small = u32(min(x, 1.0) * 16777216.0 + 0.5); // a denormal half counts 2^-24
    let finite = select(pack2x16float(vec2<f32>(min(x, 65504.0), 0.0)) & 0xffffu, small, x < 6.103515625e-5);
    return select(0x7c00u, finite, x <= 65504.0);
}

fn value_of_half(bits: u32) -> f32 {
    let large = bitcast<f32>((bits << 13u) + 0x38000000u);
    return select(large, f32(bits) * 5.9604644775390625e-8, bits < 0x400u);
}
