// end_enter: the second step of the end of a layer with per-layer inputs (end_inject.wgsl) together with the next layer's queries, keys
// and values (layer_entry.c). Be x1 the stream that `down` has joined, e the gated per-layer input. Side by side it makes
//   next . (next_norm x1), for the PARTS of next;
//   proj . e, which is still to be normed with a factor r that needs all of it: x1 + r post_norm (proj . e) is the stream then;
//   folded . e, where folded is next . diag(next_norm post_norm) . proj: what r times proj . e adds to the first products.
// The sum, and the factor of next_norm, are left to attention (attend_one.wgsl).
struct Params {
    norm_at: u32,      // vectors of 4
    next_norm_at: u32, // likewise
    eps: f32,
    pad: u32,
    starts: vec4<u32>, // of the parts in next, 16-byte words
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write x: array<vec4<f32>>
#bind write sums: array<vec4<f32>>
#bind write per_layer: array<vec4<f32>>
#bind read vectors: array<vec4<f32>>
#bind write out: array<f32>
#bind read next: array<vec4<u32>>
#bind read proj: array<vec4<u32>>
#bind read folded: array<vec4<u32>>
#use w_common
const D = ${D}u;         // of the stream, in vectors of 4
const WIDTH = ${WIDTH}u; // of the per-layer input, likewise
#for k ${PRODUCTS}
const W${k} = vec4<u32>(${WORDS${k}}u, ${PLANE1_${k}}u, ${PLANE2_${k}}u, ${PLANE3_${k}}u);
const ROWS${k} = ${ROWS${k}}u;
const START${k} = ${START${k}}u; // the product's first workgroup
#use ${TYPE${k}} K=${k} W=${OF${k}} P=W${k}
#end
#use activation
#use reduce WG=${WG}
#use integers WG=${WG}
#use lane_sum N=_many LANES=${MANY} LANES_LOG2=${MANY_LOG2} LANE_SHUFFLES=${MANY_SHUFFLES}
#use lane_sum N=_few LANES=${FEW} LANES_LOG2=${FEW_LOG2} LANE_SHUFFLES=${FEW_SHUFFLES}

// Both kinds of inputs need all of z, the result of `down`, for the factor of its norm.
#for kind 2
fn stage${kind}(t: u32, writes: bool) {
    // All is asked for before anything is used.
#for r ${Z_ROUNDS}
    let i${r} = ${r}u * ${WG}u + t;
    let here${r} = i${r} < D;
    var z${r} = vec4<f32>(0.0);
#if OF_STREAM${kind}
    var x${r} = vec4<f32>(0.0);
    var norm${r} = vec4<f32>(0.0);
    var next${r} = vec4<f32>(0.0);
#end
    if (here${r}) {
#for s ${DOWN_SUMS}
        z${r} += sums[${s}u * D + i${r}];
#end
#if OF_STREAM${kind}
        x${r} = x[i${r}];
        norm${r} = vectors[p.norm_at + i${r}];
        next${r} = vectors[p.next_norm_at + i${r}];
#end
    }
#end
#if !OF_STREAM${kind}
#use end_gate
#end
    var squares = 0.0;
#for r ${Z_ROUNDS}
    squares += dot(z${r}, z${r});
#end
    let factor = 1.0 / sqrt(group_sum(squares, t) / f32(D * 4u) + p.eps);
#if OF_STREAM${kind}
#for r ${Z_ROUNDS}
    {
        let v = x${r} + z${r} * factor * norm${r};
        if (writes && here${r}) {
            let at = ${X_AT}u + 4u * i${r};
            out[at] = v.x;
            out[at + 1u] = v.y;
            out[at + 2u] = v.z;
            out[at + 3u] = v.w;
        }
        make_vector(i${r}, t, i${r} < ${STAGED_STREAM}u, v * next${r});
    }
#end
#else
#for r ${WIDTH_ROUNDS}
    {
        let g = gate${r} + factor * folded${r};
        let v = vec4<f32>(gelu_tanh(g.x), gelu_tanh(g.y), gelu_tanh(g.z), gelu_tanh(g.w)) * input${r};
        make_vector(j${r}, t, j${r} < ${STAGED_WIDTH}u, v);
    }
#end
#end
    workgroupBarrier();
}

#end
@compute @workgroup_size(${WG})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    var product = 0u;
#for k ${PRODUCTS}
    if (group.x >= START${k}) {
        product = ${k}u;
    }
#end
#for k ${PRODUCTS}
    if (product == ${k}u) {
        let lane = t % ${LANES${k}}u;
        let row = (group.x - START${k}) * (${WG}u / ${LANES${k}}u) + t / ${LANES${k}}u;
        let start = ${FROM${k}} + min(row, ROWS${k} - 1u) * W${k}.x;
#for s ${STEPS${k}}
        let v${s} = min(${s}u * ${LANES${k}}u + lane, ${PAIRS${k}}u - 1u);
        let w${s} = fetch_pair${k}(start, v${s});
#end
        stage${KIND${k}}(t, group.x == 0u);
        var sum = 0.0;
#for s ${STEPS${k}}
        sum += pair_dot${k}(w${s}, v${s}, ${s}u * ${LANES${k}}u + lane);
#end
        sum = lane_sum${SUM${k}}(sum, t);
        if (lane == 0u && row < ROWS${k}) {
            out[${OUT${k}}u + row] = sum;
        }
    }
#end
}
