// copy_rows: words of 4 bytes from one tensor to another.
struct Params {
    src: u32,
    dst: u32,
    n: u32,
    grid_x: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write src: array<u32>
#bind write dst: array<u32>

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * p.grid_x + id.x;
    if (i < p.n) {
        dst[p.dst + i] = src[p.src + i];
    }
}
