// integers: the input of a product as 16-bit integers in two planes of bytes, x = scale (256 high + low), with a scale for every stretch
// of 64. So four products of bytes are one instruction, and a sum of bytes is exact.
//
// Run k (16 elements) of stretch s: high bytes in x_bytes[k STRIDE + s], low ones in x_bytes[(k + 4) STRIDE + s]. STRIDE is odd, so that
// lanes with neighbouring stretches or with different runs hit different banks.
const STRIDE = ${STRIDE}u;
var<workgroup> x_bytes: array<vec4<u32>, 8u * STRIDE>;
var<workgroup> x_sums: array<i32, 4u * STRIDE>; // of runs, as above
var<workgroup> x_scales: array<f32, STRIDE>;
#if !SHUFFLES_VECTORS
var<workgroup> largest_of_vectors: array<f32, ${WG}>;
var<workgroup> words_of_vectors: array<vec2<u32>, ${WG}>; // high bytes, low bytes
#end

fn largest_of(v: vec4<f32>) -> f32 {
    return max(max(v.x, v.y), max(v.z, v.w));
}

// Vector i of the input, if it is inside, becomes integers; t % 16 must be i % 16. All invocations must call, 16 neighbours with a
// stretch's vectors; a barrier must follow.
fn make_vector(i: u32, t: u32, inside: bool, v: vec4<f32>) {
    // What is no number stays none: it makes the scale of its stretch infinite.
    var largest = select(3.4e38, largest_of(abs(v)), abs(dot(v, vec4<f32>(0.001))) < 3.0e38);
#if SHUFFLES_VECTORS
#for k 4
    largest = max(largest, subgroupShuffleXor(largest, 1u << ${k}u));
#end
#else
    largest_of_vectors[t] = largest;
    workgroupBarrier();
    for (var k = 0u; k < 16u; k++) {
        largest = max(largest, largest_of_vectors[t - t % 16u + k]);
    }
#end
    // Beside 1.5 2^23 a float has no fraction, and its last bits are the integer.
    let whole = v * select(0.0, 32512.0 / largest, largest > 0.0) + 12582912.0;
    let bits = bitcast<vec4<u32>>(whole);
    let high = pack4xU8(((bits + 128u) >> vec4<u32>(8u)) & vec4<u32>(255u));
    let low = pack4xU8(bits & vec4<u32>(255u));
    let ones = vec4<u32>(0x01010101u);
    // A run's four words make one vector of each plane. Whole vectors are stored: where neighbours store elements of the same vector,
    // one may undo what another did.
    let s = i >> 4u;
    let k = (i >> 2u) & 3u;
#if SHUFFLES_VECTORS
    let odd = (t & 1u) == 1u; // takes the low bytes
    let other = subgroupShuffleXor(select(low, high, odd), 1u);
    let pair = select(vec2<u32>(high, other), vec2<u32>(other, low), odd);
    let plane = vec4<u32>(pair, subgroupShuffleXor(pair.x, 2u), subgroupShuffleXor(pair.y, 2u));
    let sum = bytes_dot(plane, ones) * select(256, 1, odd);
    let both = sum + subgroupShuffleXor(sum, 1u);
    if (inside && (i & 2u) == 0u) {
        x_bytes[(k + select(0u, 4u, odd)) * STRIDE + s] = plane;
        if (!odd) {
            x_sums[k * STRIDE + s] = both;
        }
    }
#else
    words_of_vectors[t] = vec2<u32>(high, low);
    workgroupBarrier();
    if (inside && (i & 3u) == 0u) {
        var highs = vec4<u32>(0u);
        var lows = vec4<u32>(0u);
        var sum = 0;
        for (var j = 0u; j < 4u; j++) {
            let words = words_of_vectors[t + j];
            highs[j] = words.x;
            lows[j] = words.y;
            sum += 256 * dot4I8Packed(words.x, ones.x) + dot4I8Packed(words.y, ones.x);
        }
        x_bytes[k * STRIDE + s] = highs;
        x_bytes[(k + 4u) * STRIDE + s] = lows;
        x_sums[k * STRIDE + s] = sum;
    }
#end
    if (inside && (i & 15u) == 0u) {
        x_scales[s] = select(largest / 32512.0, largest * largest, largest > 3.0e38);
    }
}

fn bytes_dot(w: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4I8Packed(w.x, x.x) + dot4I8Packed(w.y, x.y) + dot4I8Packed(w.z, x.z) + dot4I8Packed(w.w, x.w);
}

// The products of 16 weights with a run: with its high bytes, with its low ones.
fn run_dot(w: vec4<u32>, at: u32) -> vec2<i32> {
    return vec2<i32>(bytes_dot(w, x_bytes[at]), bytes_dot(w, x_bytes[4u * STRIDE + at]));
}

// The sums of a stretch's four runs.
fn sums_of(s: u32) -> vec4<i32> {
    return vec4<i32>(x_sums[s], x_sums[STRIDE + s], x_sums[2u * STRIDE + s], x_sums[3u * STRIDE + s]);
}

fn joined(v: vec2<i32>) -> f32 {
    return 256.0 * f32(v.x) + f32(v.y);
}

fn low_nibbles(q: vec4<u32>) -> vec4<u32> {
    return q & vec4<u32>(0x0f0f0f0fu);
}

fn high_nibbles(q: vec4<u32>) -> vec4<u32> {
    return (q >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
}
