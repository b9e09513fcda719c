// copy_within: copy_rows inside one tensor, which can be bound once only. The ranges do not overlap.
struct Params {
    src: u32,
    dst: u32,
    n: u32,
    grid_x: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write data: array<u32>

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * p.grid_x + id.x;
    if (i < p.n) {
        data[p.dst + i] = data[p.src + i];
    }
}
