// w_folded: weights that carat makes itself (layer_end.c): 16-bit integers as round16.wgsl has them, in a plane of high bytes and one
// of low ones, then the scales (f32), one for every stretch of 64. Only for products in integers.
struct Pair${K} {
#for k 4
    high${k}: vec4<u32>,
#end
#for k 4
    low${k}: vec4<u32>,
#end
    scale: f32,
}

fn fetch_pair${K}(row: u32, v: u32) -> Pair${K} {
    let high = row + 4u * v;
    let low = high + ${P}.y;
    return Pair${K}(${W}[high], ${W}[high + 1u], ${W}[high + 2u], ${W}[high + 3u], ${W}[low], ${W}[low + 1u], ${W}[low + 2u],
        ${W}[low + 3u], bitcast<f32>(${W}[row + ${P}.z + (v >> 2u)][v & 3u]));
}

fn pair_dot${K}(r: Pair${K}, v: u32, inside: u32) -> f32 {
    var high = vec2<i32>(0);
    var low = vec2<i32>(0);
#for k 4
    high += run_dot(r.high${k}, ${k}u * STRIDE + inside);
    low += run_dot(r.low${k}, ${k}u * STRIDE + inside);
#end
    return x_scales[inside] * r.scale * (256.0 * joined(high) + joined(low));
}
