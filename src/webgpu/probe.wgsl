// probe: how many invocations a subgroup has, and whether they are neighbours in the workgroup.
struct Params {
    unused: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write out: array<vec2<u32>>

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) t: u32, @builtin(subgroup_size) size: u32, @builtin(subgroup_invocation_id) inside: u32) {
    out[t] = vec2<u32>(size + p.unused, inside);
}
