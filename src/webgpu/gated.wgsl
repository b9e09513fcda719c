// gated: out = activation(gate) * up, where gate and up are columns of one scratch tensor [n, 2 n_cols].
struct Params {
    n_cols: u32,
    n_rows: u32,
    grid_x: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write both: array<f32>
#bind write out: array<f32>
#use activation

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * p.grid_x + id.x;
    if (i < p.n_cols * p.n_rows) {
        let at = (i / p.n_cols) * 2u * p.n_cols + i % p.n_cols;
        out[i] = activate(both[at]) * both[at + p.n_cols];
    }
}
