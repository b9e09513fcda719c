// end_gate: inside a function, asks for what the gate of the per-layer input is made of (end_inject.wgsl, end_enter.wgsl): for its vectors
// j, t and every WG-th behind it, the sums of folded . h and gate . x, and the input.
#for r ${WIDTH_ROUNDS}
    let j${r} = ${r}u * ${WG}u + t;
    var folded${r} = vec4<f32>(0.0);
    var gate${r} = vec4<f32>(0.0);
    var input${r} = vec4<f32>(0.0);
    if (j${r} < WIDTH) {
#for s ${FOLDED_SUMS}
        folded${r} += sums[${DOWN_SUMS}u * D + ${s}u * WIDTH + j${r}];
#end
#for s ${GATE_SUMS}
        gate${r} += sums[${DOWN_SUMS}u * D + (${FOLDED_SUMS}u + ${s}u) * WIDTH + j${r}];
#end
        input${r} = per_layer[j${r}];
    }
#end
