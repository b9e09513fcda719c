// embed: out[i] = row ids[i] of a table * scale. An invocation makes one unit of 32 elements. Ids outside this slice of the table
// are left to the dispatch of another slice.
struct Params {
    w0: vec4<u32>,
    n_cols: u32,
    n_units: u32,
    first_row: u32,
    n_rows: u32,
    scale: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind read ids: array<i32>
#bind write out: array<f32>
#bind read w0: array<vec4<u32>>
#use w_common
#use ${TYPE0} K=0 W=w0 P=p.w0

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let u = id.x;
    let row = u32(ids[id.y]) - p.first_row;
    if (u >= p.n_units || row >= p.n_rows) {
        return;
    }
    let v = decode0(fetch0(row * p.w0.x, u), u);
    let at = id.y * p.n_cols;
#for j 8
    {
        let e = 4u * xi0(u, ${j}u);
        for (var c = 0u; c < 4u && e + c < p.n_cols; c++) {
            out[at + e + c] = v[${j}][c] * p.scale;
        }
    }
#end
}
