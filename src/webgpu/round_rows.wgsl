// round_rows: rows of f32, times ${FACTOR}, as rows of Q8_0 in ${TERMS} terms: the rows of each term are what is left of those before it.
// An invocation makes two blocks of 32, whose scales share a word.
struct Params {
    n_rows: u32,    // of `rows` and of a term
    n_cols: u32,    // a multiple of 64
    row_words: u32, // of the result, 4 bytes each
    scales_at: u32, // in a row of it, 4 bytes each
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write rows: array<vec4<f32>>
#bind write out: array<u32>
#use half_bits

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = id.y;
    if (id.x * 64u >= p.n_cols) {
        return;
    }
    var v: array<vec4<f32>, 16>;
    for (var i = 0u; i < 16u; i++) {
        v[i] = rows[(row * p.n_cols + id.x * 64u) / 4u + i] * ${FACTOR}.0;
    }
    for (var term = 0u; term < ${TERMS}u; term++) {
        let at = (term * p.n_rows + row) * p.row_words;
        var scales = 0u;
        for (var block = 0u; block < 2u; block++) {
            var most = vec4<f32>(0.0);
            for (var i = 0u; i < 8u; i++) {
                most = max(most, abs(v[8u * block + i]));
            }
            let bits = half_bits(max(max(most.x, most.y), max(most.z, most.w)) / 127.0);
            let scale = value_of_half(bits);
            let inverse = select(0.0, 1.0 / scale, bits > 0u);
            for (var i = 0u; i < 8u; i++) {
                let q = round(clamp(v[8u * block + i] * inverse, vec4<f32>(-127.0), vec4<f32>(127.0)));
                v[8u * block + i] -= q * scale;
                out[at + id.x * 16u + 8u * block + i] = pack4xI8(vec4<i32>(q));
            }
            scales |= bits << (16u * block);
        }
        out[at + p.scales_at + id.x] = scales;
    }
}
