// activation: the functions between the products. tanh by way of exp with a bounded argument: some drivers overflow. What is no
// number has to stay none, so that it is noticed in the end: told by its bits, since compilers may assume that there is none.
fn bounded_tanh(x: f32) -> f32 {
    let bounded = 1.0 - 2.0 / (exp(2.0 * clamp(x, -20.0, 20.0)) + 1.0);
    return select(bounded, x, (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u);
}

fn gelu_tanh(x: f32) -> f32 {
    return 0.5 * x * (1.0 + bounded_tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

fn activate(x: f32) -> f32 {
#if SILU
    return x / (1.0 + exp(-clamp(x, -80.0, 80.0)));
#else
#if QUICK
    return x / (1.0 + exp(-clamp(1.702 * x, -80.0, 80.0)));
#else
    return gelu_tanh(x);
#end
#end
}
