// w_common: what the weight snippets w_*.wgsl share.
//
// A snippet reads slot K from the array W: fetch(row, u) loads unit u of the row whose first 16-byte word has the index `row`, decode() gives its 32
// weights as 8 vectors; vector j belongs to the elements 4 xi(u, j) .. 4 xi(u, j) + 3 of the row. dot() is their product with x, the
// same elements of the other factor, where s holds the sums of the vectors 0 and 1, 2 and 3, 4 and 5, 6 and 7 of x. P.yzw
// say where a row's second, third and fourth plane start, in words (layout.c). Types that multiply integers (integers.wgsl) also have
// fetch_pair() and pair_dot(), for two units at a time.

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

// The four bytes of a word minus `offset`, the second and the fourth 256 times too large. A byte under the mantissa of 2^23 is a
// float that is larger by 2^23, without a conversion (which many GPUs do at a fraction of their speed).
fn raised_bytes(w: u32, offset: f32) -> vec4<f32> {
    let t = w >> 16u;
    let bits = (vec4<u32>(w, w, t, t) & vec4<u32>(0xffu, 0xff00u, 0xffu, 0xff00u)) | vec4<u32>(0x4b000000u);
    return bitcast<vec4<f32>>(bits) - vec4<f32>(8388608.0 + offset, 8388608.0 + 256.0 * offset, 8388608.0 + offset,
        8388608.0 + 256.0 * offset);
}

// The sum of such a vector.
fn lowered(v: vec4<f32>) -> f32 {
    return v.x + v.z + (v.y + v.w) * 0.00390625;
}

// sum of low nibbles times x[0..4], sum of high nibbles times x[4..8], by the same trick.
fn nibble_sums(q: vec4<u32>, x: array<vec4<f32>, 8>) -> vec2<f32> {
    var a = vec4<f32>(0.0);
    var b = vec4<f32>(0.0);
#for j 4
    {
        let t = q[${j}] >> 16u;
        let w = vec4<u32>(q[${j}], q[${j}], t, t);
        a += (bitcast<vec4<f32>>((w & vec4<u32>(0x0fu, 0x0f00u, 0x0fu, 0x0f00u)) | vec4<u32>(0x4b000000u)) - 8388608.0) * x[${j}];
        b += (bitcast<vec4<f32>>((w & vec4<u32>(0xf0u, 0xf000u, 0xf0u, 0xf000u)) | vec4<u32>(0x4b000000u)) - 8388608.0) * x[${j} + 4];
    }
#end
    return vec2<f32>(lowered(a), lowered(b) * 0.0625);
}

fn bytes_of(w: u32) -> vec4<f32> {
    return raised_bytes(w, 0.0) * vec4<f32>(1.0, 0.00390625, 1.0, 0.00390625);
}

fn signed_bytes(w: u32) -> vec4<f32> {
    return raised_bytes(w ^ 0x80808080u, 128.0) * vec4<f32>(1.0, 0.00390625, 1.0, 0.00390625);
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

// Bit `bit` of each byte of h above the `n` low bits of those of w. Values are put together so, as integers: compilers were seen to
// add two results of bytes_of() before either has lost its 2^23, and low bits were gone.
fn with_high_bit(w: u32, n: u32, h: u32, bit: u32) -> u32 {
    return w | (((h >> bit) & 0x01010101u) << n);
}

// Low nibbles of q with two bits of h from `first` on above them, in bytes.
fn six_bits(q: u32, h: u32, first: u32) -> u32 {
    return (q & 0x0f0f0f0fu) | (((h >> first) & 0x03030303u) << 4u);
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
