// experts: products with the chosen experts' matrices. A workgroup of 64 makes 8 rows, 8 invocations share each.
//
// DOWN: out[row] (+)= sum over the chosen experts e of share * W[e] . in[row, e]. Otherwise the gate and up products of one chosen
// expert each: out[row, e] = gelu_tanh(gate in[row]) * (up in[row]), gate and up rows in one weight (gate first) or in two.
// Experts of another slice of the weight are left to that slice's dispatch.
struct Params {
    w0: vec4<u32>,
    w1: vec4<u32>,
    n_in: u32,
    n_units: u32,
    n_out: u32,
    n_used: u32,
    first_expert: u32, // of this slice
    n_experts: u32,
    rows: u32,  // of one expert in w0
    adds: u32,  // DOWN: 1 when another slice has written already
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write x: array<f32>
#bind write chosen: array<u32>
#bind write shares: array<f32>
#bind write out: array<f32>
#for k ${PARTS}
#bind read w${k}: array<vec4<u32>>
#end
#use w_common
#for k ${PARTS}
#use ${TYPE${k}} K=${k} W=w${k} P=p.w${k}
#end
#use activation
var<workgroup> sums: array<f32, 64>;
var<workgroup> others: array<f32, 64>;

fn inputs(at: u32, e: u32) -> vec4<f32> {
    var r = vec4<f32>(0.0);
    for (var c = 0u; c < 4u; c++) {
        if (e + c < p.n_in) {
            r[c] = x[at + e + c];
        }
    }
    return r;
}

#for k ${PARTS}
fn product${k}(row: u32, at: u32, lane: u32) -> f32 {
    var sum = 0.0;
    for (var u = lane; u < p.n_units; u += 8u) {
        let v = decode${k}(fetch${k}(row * p.w${k}.x, u), u);
#for j 8
        sum += dot(v[${j}], inputs(at, 4u * xi${k}(u, ${j}u)));
#end
    }
    return sum;
}
#end

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let lane = t % 8u;
    let o = group.x * 8u + t / 8u;
    let safe = min(o, p.n_out - 1u);
    var a = 0.0;
    var b = 0.0;
    var here = false;
#if DOWN
    for (var e = 0u; e < p.n_used; e++) {
        let at = group.y * p.n_used + e;
        let expert = chosen[at] - p.first_expert;
        if (expert < p.n_experts) {
            a += shares[at] * product0(expert * p.rows + safe, at * p.n_in, lane);
        }
    }
#else
    let expert = chosen[group.y * p.n_used + group.z] - p.first_expert;
    here = expert < p.n_experts;
    if (here) {
        a = product0(expert * p.rows + safe, group.y * p.n_in, lane);
#if TWO
        b = product1(expert * p.rows + safe, group.y * p.n_in, lane);
#else
        b = product0(expert * p.rows + p.n_out + safe, group.y * p.n_in, lane);
#end
    }
#end
    sums[t] = a;
    others[t] = b;
    workgroupBarrier();
    for (var s = 4u; s > 0u; s = s >> 1u) {
        if (lane < s) {
            sums[t] += sums[t + s];
            others[t] += others[t + s];
        }
        workgroupBarrier();
    }
    if (lane == 0u && o < p.n_out) {
#if DOWN
        let to = group.y * p.n_out + o;
        if (p.adds == 1u) {
            out[to] += sums[t];
        } else {
            out[to] = sums[t];
        }
#else
        if (here) {
            out[(group.y * p.n_used + group.z) * p.n_out + o] = activate(sums[t]) * others[t];
        }
#end
    }
}
