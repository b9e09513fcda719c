// floats: the input of a product in f32 in workgroup memory, with a vector of padding after every 16 so that neighbours hit different banks.
var<workgroup> xs: array<vec4<f32>, ${XS_VECTORS}>;

fn slot(v: u32) -> u32 {
    return v + (v >> 4u);
}

fn pair_sum(a: vec4<f32>, b: vec4<f32>) -> f32 {
    return dot(a + b, vec4<f32>(1.0));
}
