// round_rows: rows of f32 in the format of w_folded.wgsl. An invocation makes a stretch of 64.
struct Params {
    n_cols: u32,    // a multiple of 64
    row_words: u32, // of the result, 4 bytes each
    low_at: u32,    // in a row of it, likewise
    scales_at: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write rows: array<vec4<f32>>
#bind write out: array<u32>
#use round16

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x * 64u >= p.n_cols) {
        return;
    }
    let first = (id.y * p.n_cols + id.x * 64u) / 4u;
    var largest = 0.0;
    for (var i = 0u; i < 16u; i++) {
        largest = max(largest, magnitude(rows[first + i]));
    }
    let at = id.y * p.row_words;
    for (var i = 0u; i < 16u; i++) {
        let bits = rounded(rows[first + i], largest);
        out[at + id.x * 16u + i] = high_bytes(bits);
        out[at + p.low_at + id.x * 16u + i] = low_bytes(bits);
    }
    out[at + p.scales_at + id.x] = bitcast<u32>(scale_of(largest));
}
