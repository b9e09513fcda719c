// integers: the input of a product as 16-bit integers in two planes of bytes, x = scale (256 high + low), with a scale for every stretch
// of 64. So four products of bytes are one instruction, and a sum of bytes is exact.
//
// Run k (16 elements) of stretch s: high bytes in x_bytes[k STRIDE + s], low ones in x_bytes[(k + 4) STRIDE + s]. STRIDE is odd, so that
// lanes with neighbouring stretches or with different runs hit different banks.
const STRIDE = ${STRIDE}u;
var<workgroup> x_bytes: array<vec4<u32>, 8u * STRIDE>;
var<workgroup> x_sums: array<vec4<i32>, STRIDE>; // of a stretch's four runs
var<workgroup> x_scales: array<f32, STRIDE>;
#if !SHUFFLES_VECTORS
var<workgroup> vector_marks: array<f32, ${WG}>;
#end

fn largest_of(v: vec4<f32>) -> f32 {
    return max(max(v.x, v.y), max(v.z, v.w));
}

// Vector i of the input, if it is inside, becomes integers; t % 16 must be i % 16. All invocations must call, 16 neighbours with a
// stretch's vectors; a barrier must follow.
fn make_vector(i: u32, t: u32, inside: bool, v: vec4<f32>) {
    var largest = largest_of(abs(v));
    // What is no number stays none: it makes the scale of its stretch infinite.
    largest = select(3.4e38, largest, abs(dot(v, vec4<f32>(1.0))) < 3.0e38);
#if SHUFFLES_VECTORS
#for k 4
    largest = max(largest, subgroupShuffleXor(largest, 1u << ${k}u));
#end
#else
    workgroupBarrier();
    vector_marks[t] = largest;
    workgroupBarrier();
    for (var k = 0u; k < 16u; k++) {
        largest = max(largest, vector_marks[t - t % 16u + k]);
    }
    workgroupBarrier();
#end
    // Beside 1.5 2^23 a float has no fraction, and its last bits are the integer.
    let whole = v * select(0.0, 32512.0 / largest, largest > 0.0) + 12582912.0;
    let bits = bitcast<vec4<u32>>(whole);
    var sum = dot(whole - 12582912.0, vec4<f32>(1.0));
#if SHUFFLES_VECTORS
#for k 2
    sum += subgroupShuffleXor(sum, 1u << ${k}u);
#end
#else
    vector_marks[t] = sum;
    workgroupBarrier();
    sum = 0.0;
    for (var k = 0u; k < 4u; k++) {
        sum += vector_marks[t - t % 4u + k];
    }
#end
    if (inside) {
        let s = i >> 4u;
        let k = (i >> 2u) & 3u;
        x_bytes[k * STRIDE + s][i & 3u] = pack4xU8(((bits + 128u) >> vec4<u32>(8u)) & vec4<u32>(255u));
        x_bytes[(k + 4u) * STRIDE + s][i & 3u] = pack4xU8(bits & vec4<u32>(255u));
        if ((i & 3u) == 0u) {
            x_sums[s][k] = i32(sum);
        }
        if ((i & 15u) == 0u) {
            x_scales[s] = select(largest / 32512.0, largest * largest, largest > 3.0e38);
        }
    }
}

fn bytes_dot(w: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4I8Packed(w.x, x.x) + dot4I8Packed(w.y, x.y) + dot4I8Packed(w.z, x.z) + dot4I8Packed(w.w, x.w);
}

// The products of 16 weights with a run: with its high bytes, with its low ones.
fn run_dot(w: vec4<u32>, at: u32) -> vec2<i32> {
    return vec2<i32>(bytes_dot(w, x_bytes[at]), bytes_dot(w, x_bytes[4u * STRIDE + at]));
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
