// repack: rows of GGUF blocks, as the file holds them, to the planes described in layout.c. An invocation makes one word of 4 bytes.
struct Params {
    starts: vec4<u32>,  // of the planes in a row, in words of 4 bytes
    bytes: vec4<u32>,   // of each plane in a block; 0: no plane
    offsets: vec4<u32>, // of each plane's bytes in a block
    orders: vec4<u32>,  // how bytes are permuted inside a block: see below
    n_blocks: u32,      // in a row
    block_bytes: u32,
    row_bytes: u32,
    row_words: u32,     // of the result
    src_offset: u32,    // bytes
    dst_row: u32,
    n_rows: u32,
    grid_x: u32,        // invocations in x
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write src: array<u32>
#bind write dst: array<u32>

// 1: Q6_K's nibbles, 8 bytes of columns l then 8 bytes of columns l + 32. 2: scale bytes of 4 groups next to each other.
fn permuted(order: u32, k: u32) -> u32 {
    if (order == 1u) {
        return (k & 64u) + ((k >> 3u) & 1u) * 32u + ((k >> 4u) & 3u) * 8u + (k & 7u);
    }
    if (order == 2u) {
        return (k & 8u) + 2u * (k & 3u) + ((k >> 2u) & 1u);
    }
    return k;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * p.grid_x + id.x;
    if (i >= p.n_rows * p.row_words) {
        return;
    }
    let row = i / p.row_words;
    let word = i % p.row_words;
    var plane = 0u;
    for (var k = 1u; k < 4u; k++) {
        if (p.bytes[k] != 0u && word >= p.starts[k]) {
            plane = k;
        }
    }
    let n = p.bytes[plane];
    var value = 0u;
    for (var b = 0u; b < 4u; b++) {
        let at = (word - p.starts[plane]) * 4u + b;
        let block = at / n;
        if (block < p.n_blocks) {
            let byte = p.src_offset + row * p.row_bytes + block * p.block_bytes + p.offsets[plane] + permuted(p.orders[plane], at % n);
            value |= ((src[byte >> 2u] >> (8u * (byte & 3u))) & 255u) << (8u * b);
        }
    }
    dst[p.dst_row * p.row_words + i] = value;
}
