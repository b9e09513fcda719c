// tower_gate: x = activation(x), or activation(x) * up where there is an up.
struct Params {
    n: u32,
    grid_x: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write x: array<f32>
#if UP
#bind write up: array<f32>
#end
#use activation

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * p.grid_x + id.x;
    if (i < p.n) {
#if UP
        x[i] = activate(x[i]) * up[i];
#else
        x[i] = activate(x[i]);
#end
    }
}
