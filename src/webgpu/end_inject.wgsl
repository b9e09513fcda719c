// end_inject: the second step of the end of a layer with per-layer inputs (layer_end.c). From the sums of the first step every workgroup
// makes z, the result of `down`, and its norm factor f, which is all that the gate still needs:
//   x + f z norm is the settled stream, which the first workgroup writes to `spare`;
//   g = gate . x + f folded . h is the gate's product with it;
//   gelu_tanh(g) * per_layer is multiplied with `proj`, LANES neighbours a row.
@group(0) @binding(0) var<uniform> eps: f32;
#bind write x: array<vec4<f32>>
#bind write sums: array<vec4<f32>>
#bind write per_layer: array<vec4<f32>>
#bind read norm: array<vec4<f32>>
#bind write spare: array<vec4<f32>>
#bind write out: array<f32>
#bind read w0: array<vec4<u32>>
#use w_common
const D = ${D}u;         // of the stream, in vectors of 4
const WIDTH = ${WIDTH}u; // of the per-layer input, likewise
const LANES = ${LANES}u;
const GROUPS = ${WG}u / LANES;
const W0 = vec4<u32>(${WORDS0}u, ${PLANE1_0}u, ${PLANE2_0}u, ${PLANE3_0}u);
#use ${TYPE0} K=0 W=w0 P=W0
#use activation
#use reduce WG=${WG}
#if INTEGER
#use integers WG=${WG}
#else
#use floats
#end
#use lane_sum N=

@compute @workgroup_size(${WG})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let lane = t % LANES;
    let row = group.x * GROUPS + t / LANES;
#for s ${STEPS}
    let u${s} = min(${s}u * LANES + lane, ${UNITS}u - 1u);
    let w${s} = ${FETCH}0(min(row, D * 4u - 1u) * W0.x, u${s});
#end
    // All is asked for before anything is used.
#for r ${D_ROUNDS}
    let i${r} = ${r}u * ${WG}u + t;
    let here${r} = i${r} < D;
    var x${r} = vec4<f32>(0.0);
    var z${r} = vec4<f32>(0.0);
    var norm${r} = vec4<f32>(0.0);
    if (here${r}) {
        x${r} = x[i${r}];
        norm${r} = norm[i${r}];
#for s ${DOWN_SUMS}
        z${r} += sums[${s}u * D + i${r}];
#end
    }
#end
#use end_gate
    var squares = 0.0;
#for r ${D_ROUNDS}
    squares += dot(z${r}, z${r});
#end
    let factor = 1.0 / sqrt(group_sum(squares, t) / f32(D * 4u) + eps);
    if (group.x == 0u) {
#for r ${D_ROUNDS}
        if (here${r}) {
            spare[i${r}] = x${r} + z${r} * factor * norm${r};
        }
#end
    }
#for r ${WIDTH_ROUNDS}
    {
        let g = gate${r} + factor * folded${r};
        let v = vec4<f32>(gelu_tanh(g.x), gelu_tanh(g.y), gelu_tanh(g.z), gelu_tanh(g.w)) * input${r};
#if INTEGER
        make_vector(j${r}, t, j${r} < WIDTH, v);
#else
        if (j${r} < WIDTH) {
            xs[slot(j${r})] = v;
        }
#end
    }
#end
    workgroupBarrier();
    var sum = 0.0;
#for s ${STEPS}
    if (${s}u * LANES + lane < ${UNITS}u) {
        let inside = ${s}u * LANES + lane;
#use matvec_input K=0
        sum += ${DOT}0(w${s}, u${s}, ${INPUT});
    }
#end
    sum = lane_sum(sum, t);
    if (lane == 0u && row < D * 4u) {
        out[row] = sum;
    }
}
