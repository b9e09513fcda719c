// integers: the input of a product as 16-bit integers in two planes of bytes, x = scale (256 high + low), with a scale for every stretch
// of 64. So four products of bytes are one instruction, and a sum of bytes is exact.
//
// Run k (16 elements) of stretch s: high bytes in x_bytes[k STRIDE + s], low ones in x_bytes[(k + 4) STRIDE + s]. STRIDE is odd, so that
// lanes with neighbouring stretches or with different runs hit different banks.
const STRIDE = ${STRIDE}u;
var<workgroup> x_bytes: array<vec4<u32>, 8u * STRIDE>;
var<workgroup> x_sums: array<i32, 4u * STRIDE>; // of runs, each stored by another invocation
var<workgroup> x_scales: array<f32, STRIDE>;
#if !SHUFFLES_RUNS
var<workgroup> run_marks: array<vec2<f32>, 4u * STRIDE>;
#end

fn largest_of(v: vec4<f32>) -> f32 {
    return max(max(v.x, v.y), max(v.z, v.w));
}

// Run `run` of the input, if it is inside, becomes integers. All invocations must call, four neighbours with a stretch's runs; a barrier must
// follow.
fn make_run(run: u32, inside: bool, v0: vec4<f32>, v1: vec4<f32>, v2: vec4<f32>, v3: vec4<f32>) {
    var largest = largest_of(max(max(abs(v0), abs(v1)), max(abs(v2), abs(v3))));
    var total = dot(v0 + v1 + v2 + v3, vec4<f32>(1.0));
#if SHUFFLES_RUNS
#for i 2
    largest = max(largest, subgroupShuffleXor(largest, 1u << ${i}u));
    total += subgroupShuffleXor(total, 1u << ${i}u);
#end
#else
    workgroupBarrier();
    if (inside) {
        run_marks[run] = vec2<f32>(largest, total);
    }
    workgroupBarrier();
    total = 0.0;
    for (var k = 0u; k < 4u; k++) {
        let mark = run_marks[min(run - run % 4u + k, 4u * STRIDE - 1u)];
        largest = max(largest, mark.x);
        total += mark.y;
    }
#end
    let factor = select(0.0, 32512.0 / largest, largest > 0.0);
    var high = vec4<u32>(0u);
    var low = vec4<u32>(0u);
    var sum = vec4<f32>(0.0);
#for j 4
    {
        // Beside 1.5 2^23 a float has no fraction, and its last bits are the integer.
        let whole = v${j} * factor + 12582912.0;
        let bits = bitcast<vec4<u32>>(whole);
        sum += whole - 12582912.0;
        low[${j}] = pack4xU8(bits & vec4<u32>(255u));
        high[${j}] = pack4xU8(((bits + 128u) >> vec4<u32>(8u)) & vec4<u32>(255u));
    }
#end
    if (inside) {
        let s = run >> 2u;
        let k = run & 3u;
        x_bytes[k * STRIDE + s] = high;
        x_bytes[(k + 4u) * STRIDE + s] = low;
        x_sums[run] = i32(dot(sum, vec4<f32>(1.0)));
        if (k == 0u) {
            // What is no number stays none.
            x_scales[s] = select(total * 3.0e38, largest / 32512.0, abs(total) < 3.0e38);
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

// The sums of a stretch's four runs.
fn sums_of(s: u32) -> vec4<i32> {
    return vec4<i32>(x_sums[4u * s], x_sums[4u * s + 1u], x_sums[4u * s + 2u], x_sums[4u * s + 3u]);
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
