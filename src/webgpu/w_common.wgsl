// w_common: what the weight snippets w_*.wgsl share.
//
// A snippet reads slot K: fetch(row, u) loads unit u of the row whose first 16-byte word has the index `row`, decode() gives its 32
// weights as 8 vectors; vector j belongs to the elements 4 xi(u, j) .. 4 xi(u, j) + 3 of the row. dot() is their product with x, the
// same elements of the other factor, where s holds the sums of the vectors 0 and 1, 2 and 3, 4 and 5, 6 and 7 of x. The parameters
// p.wK hold the words of a row and where its second, third and fourth plane start (layout.c).

fn halves(w: u32) -> vec2<f32> {
#if EXACT_HALF
    return vec2<f32>(half_value(w & 0xffffu), half_value(w >> 16u));
#else
    return unpack2x16float(w);
#end
}

#if EXACT_HALF
// For devices whose conversion flushes small halves to zero: scales of quantised blocks are often that small.
fn half_value(h: u32) -> f32 {
    let magnitude = h & 0x7fffu;
    let small = f32(magnitude) * 5.9604644775390625e-8;
    let large = bitcast<f32>((magnitude << 13u) + 0x38000000u);
    let value = select(large, small, magnitude < 0x400u);
    return select(value, -value, (h & 0x8000u) != 0u);
}
#end

// Half number (i & 1) of a word.
fn half_at(w: u32, i: u32) -> f32 {
    let h = halves(w);
    return select(h.x, h.y, (i & 1u) == 1u);
}

fn bytes_of(w: u32) -> vec4<f32> {
    return vec4<f32>((vec4<u32>(w) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u));
}

fn signed_bytes(w: u32) -> vec4<f32> {
    return vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(w) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}

fn low(w: u32) -> vec4<f32> {
    return bytes_of(w & 0x0f0f0f0fu);
}

fn high(w: u32) -> vec4<f32> {
    return bytes_of((w >> 4u) & 0x0f0f0f0fu);
}

// 16 for each of the four bits of h from `first` on that is set.
fn fifth_bits(h: u32, first: u32) -> vec4<f32> {
    let b = h >> first;
    return vec4<f32>((vec4<u32>(b << 4u, b << 3u, b << 2u, b << 1u)) & vec4<u32>(16u));
}

// Two bits of each byte from bit `first` on.
fn two_bits(w: u32, first: u32) -> vec4<f32> {
    return bytes_of((w >> first) & 0x03030303u);
}

fn bit_of_bytes(w: u32, bit: u32) -> vec4<f32> {
    return bytes_of((w >> bit) & 0x01010101u);
}

// Low nibbles of q with two bits of h from `first` on above them.
fn six_bits(q: u32, h: u32, first: u32) -> vec4<f32> {
    return bytes_of((q & 0x0f0f0f0fu) | (((h >> first) & 0x03030303u) << 4u));
}

// The levels of IQ4_NL and IQ4_XS for the low nibbles of q: -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113.
fn iq4_level(n: u32) -> f32 {
    let upper = (n & 4u) != 0u;
    let word = select(select(0xbfad9881u, 0xf6eaddcfu, upper), select(0x26190d01u, 0x71594535u, upper), (n & 8u) != 0u);
    return f32(bitcast<i32>(word << (24u - 8u * (n & 3u))) >> 24u);
}

fn iq4_levels(q: u32) -> vec4<f32> {
    return vec4<f32>(iq4_level(q), iq4_level(q >> 8u), iq4_level(q >> 16u), iq4_level(q >> 24u));
}

// Twice the FP4 (E2M1) value: 0 1 2 3 4 6 8 12 and their negatives.
fn fp4_level(n: u32) -> f32 {
    let magnitude = f32((select(0x03020100u, 0x0c080604u, (n & 4u) != 0u) >> (8u * (n & 3u))) & 255u);
    return select(magnitude, -magnitude, (n & 8u) != 0u);
}

fn fp4_levels(q: u32) -> vec4<f32> {
    return vec4<f32>(fp4_level(q), fp4_level(q >> 8u), fp4_level(q >> 16u), fp4_level(q >> 24u));
}
