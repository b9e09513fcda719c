// end_sums: the first step of the end of a layer with per-layer inputs (layer_end.c): three products of one row side by side, left in
// sums. Product 0 is down . h, 1 is folded . h, 2 is gate . x.
//
// A workgroup makes GROUPS rows of one product over PAIRS of its columns, in stretches of 64: LANES neighbours share a row, each takes
// every LANES-th stretch. Weights are asked for before the input is staged (integers.wgsl).
@group(0) @binding(0) var<uniform> unused: vec4<u32>;
#bind write h: array<vec4<f32>>
#bind write x: array<vec4<f32>>
#bind write sums: array<f32>
#for k 3
#bind read w${k}: array<vec4<u32>>
#end
#use w_common
const LANES = ${LANES}u;
const GROUPS = ${WG}u / LANES;
#for k 3
const W${k} = vec4<u32>(${WORDS${k}}u, ${PLANE1_${k}}u, ${PLANE2_${k}}u, ${PLANE3_${k}}u);
const ROWS${k} = ${ROWS${k}}u;
const N_PAIRS${k} = ${N_PAIRS${k}}u;
const PAIRS${k} = ${PAIRS${k}}u; // of a workgroup
const TILES${k} = (ROWS${k} + GROUPS - 1u) / GROUPS;
#use ${TYPE${k}} K=${k} W=w${k} P=W${k}
#end
const START0 = 0u;
const START1 = TILES0 * (N_PAIRS0 / PAIRS0);
const START2 = START1 + TILES1 * (N_PAIRS1 / PAIRS1);
const OUT0 = 0u;
const OUT1 = ROWS0 * (N_PAIRS0 / PAIRS0);
const OUT2 = OUT1 + ROWS1 * (N_PAIRS1 / PAIRS1);
#use integers WG=${WG}
#use lane_sum N=

@compute @workgroup_size(${WG})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let lane = t % LANES;
    var product = 0u;
    if (group.x >= START1) {
        product = 1u;
    }
    if (group.x >= START2) {
        product = 2u;
    }
#for k 3
    if (product == ${k}u) {
        let split = (group.x - START${k}) / TILES${k};
        let row = (group.x - START${k}) % TILES${k} * GROUPS + t / LANES;
        let first = split * PAIRS${k};
#for s ${STEPS${k}}
        let v${s} = min(first + ${s}u * LANES + lane, N_PAIRS${k} - 1u);
        let w${s} = fetch_pair${k}(min(row, ROWS${k} - 1u) * W${k}.x, v${s});
#end
#if SHUFFLES_VECTORS
#for r ${ROUNDS${k}}
        let i${r} = ${r}u * ${WG}u + t;
        var own${r} = vec4<f32>(0.0);
        if (i${r} < PAIRS${k} * 16u) {
            own${r} = ${INPUT${k}}[first * 16u + i${r}];
        }
#end
#for r ${ROUNDS${k}}
        make_vector(i${r}, t, i${r} < ${STEPS${k}}u * LANES * 16u, own${r});
#end
#else
        // Not unrolled: compilers need long for that many barriers.
        for (var stage = 0u; stage < ${STEPS${k}}u * LANES * 16u; stage += ${WG}u) {
            let i = stage + t;
            var own = vec4<f32>(0.0);
            if (i < PAIRS${k} * 16u) {
                own = ${INPUT${k}}[first * 16u + i];
            }
            make_vector(i, t, i < ${STEPS${k}}u * LANES * 16u, own);
        }
#end
        workgroupBarrier();
        var sum = 0.0;
#for s ${STEPS${k}}
        sum += pair_dot${k}(w${s}, v${s}, ${s}u * LANES + lane);
#end
        sum = lane_sum(sum, t);
        if (lane == 0u && row < ROWS${k}) {
            sums[OUT${k} + split * ROWS${k} + row] = sum;
        }
    }
#end
}
