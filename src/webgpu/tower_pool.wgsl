// tower_pool: out = mean over size x size squares of the grid of patches * scale, standardised where STANDARDISES.
struct Params {
    n_cols: u32,
    n_cells: u32,
    n_columns: u32, // of the grid of patches
    size: u32,
    scale: f32,
    bias_at: u32, // elements of the vectors
    scale_at: u32,
    grid_x: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write x: array<f32>
#bind write out: array<f32>
#bind read vectors: array<f32>

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * p.grid_x + id.x;
    if (i >= p.n_cells * p.n_cols) {
        return;
    }
    let cell = i / p.n_cols;
    let c = i % p.n_cols;
    let across = p.n_columns / p.size;
    let first = cell / across * p.size * p.n_columns + cell % across * p.size;
    var sum = 0.0;
    for (var y = 0u; y < p.size; y++) {
        for (var column = 0u; column < p.size; column++) {
            sum += x[(first + y * p.n_columns + column) * p.n_cols + c];
        }
    }
    var mean = sum / f32(p.size * p.size) * p.scale;
#if STANDARDISES
    mean = (mean - vectors[p.bias_at + c]) * vectors[p.scale_at + c];
#end
    out[i] = mean;
}
