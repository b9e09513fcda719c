// integers: the input of a product as 16-bit integers in two planes of bytes (round16.wgsl), with a scale for every stretch of 64. So
// four products of bytes are one instruction, and a sum of bytes is exact.
//
// Run k (16 elements) of stretch s: high bytes in x_bytes[k STRIDE + s], low ones in x_bytes[(k + 4) STRIDE + s]. STRIDE is odd, so that
// lanes with neighbouring stretches or with different runs hit different banks.
const STRIDE = ${STRIDE}u;
// Words, not vectors: where neighbours store elements of the same vector, one may undo what another did.
var<workgroup> x_bytes: array<u32, 32u * STRIDE>;
var<workgroup> x_sums: array<i32, 4u * STRIDE>; // of runs, as above
var<workgroup> x_scales: array<f32, STRIDE>;
#if !SHUFFLES_VECTORS
var<workgroup> exchanged: array<f32, ${WG}>;
#end

#use round16

// Vector i of the input, if it is inside, becomes integers; t % 16 must be i % 16. All invocations must call, 16 neighbours with a
// stretch's vectors; a barrier must follow.
fn make_vector(i: u32, t: u32, inside: bool, v: vec4<f32>) {
    var largest = magnitude(v);
#if SHUFFLES_VECTORS
#for k 4
    largest = max(largest, subgroupShuffleXor(largest, 1u << ${k}u));
#end
#else
    exchanged[t] = largest;
    workgroupBarrier();
    for (var k = 0u; k < 16u; k++) {
        largest = max(largest, exchanged[t - t % 16u + k]);
    }
#end
    let bits = rounded(v, largest);
    let s = i >> 4u;
    let k = (i >> 2u) & 3u;
    if (inside) {
        x_bytes[4u * (k * STRIDE + s) + (i & 3u)] = high_bytes(bits);
        x_bytes[4u * ((k + 4u) * STRIDE + s) + (i & 3u)] = low_bytes(bits);
    }
    // The sum of a run, from the bits: of floats compilers may take what they were before they were rounded.
    let integers = bitcast<vec4<i32>>(bits) - vec4<i32>(0x4b400000);
    var sum = integers.x + integers.y + integers.z + integers.w;
#if SHUFFLES_VECTORS
#for n 2
    sum += subgroupShuffleXor(sum, 1u << ${n}u);
#end
#else
    workgroupBarrier();
    exchanged[t] = f32(sum);
    workgroupBarrier();
    sum = 0;
    for (var n = 0u; n < 4u; n++) {
        sum += i32(exchanged[t - t % 4u + n]);
    }
    workgroupBarrier();
#end
    if (inside && (i & 3u) == 0u) {
        x_sums[k * STRIDE + s] = sum;
    }
    if (inside && (i & 15u) == 0u) {
        x_scales[s] = scale_of(largest);
    }
}

fn bytes_dot(w: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4I8Packed(w.x, x.x) + dot4I8Packed(w.y, x.y) + dot4I8Packed(w.z, x.z) + dot4I8Packed(w.w, x.w);
}

fn bytes_at(at: u32) -> vec4<u32> {
    return vec4<u32>(x_bytes[4u * at], x_bytes[4u * at + 1u], x_bytes[4u * at + 2u], x_bytes[4u * at + 3u]);
}

// The products of 16 weights with a run: with its high bytes, with its low ones.
fn run_dot(w: vec4<u32>, at: u32) -> vec2<i32> {
    return vec2<i32>(bytes_dot(w, bytes_at(at)), bytes_dot(w, bytes_at(4u * STRIDE + at)));
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
