// tower_positions: x[i] += table[column] + table[n_positions + row] of patch first + i. An invocation adds one unit of 32 elements.
// Entries outside this slice of the table are left to the dispatch of another slice.
struct Params {
    w0: vec4<u32>,
    n_cols: u32,
    n_units: u32,
    first_row: u32, // of the slice
    n_rows: u32,
    first: u32,     // patch
    n_columns: u32,
    n_positions: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write x: array<f32>
#bind read w0: array<vec4<u32>>
#use w_common
#use ${TYPE0} K=0 W=w0 P=p.w0

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let u = id.x;
    if (u >= p.n_units) {
        return;
    }
    let patch_index = p.first + id.y;
    let at = id.y * p.n_cols;
    for (var axis = 0u; axis < 2u; axis++) {
        let entry = select(patch_index % p.n_columns, p.n_positions + patch_index / p.n_columns, axis == 1u);
        let row = entry - p.first_row;
        if (row < p.n_rows) {
            let v = decode0(fetch0(row * p.w0.x, u), u);
#for j 8
            {
                let e = 4u * xi0(u, ${j}u);
                for (var c = 0u; c < 4u && e + c < p.n_cols; c++) {
                    x[at + e + c] += v[${j}][c];
                }
            }
#end
        }
    }
}
