// lane_sum: the sum over LANES = 2^LANES_LOG2 neighbours, of which the first one gets it. All invocations of the workgroup must call it.
#if LANE_SHUFFLES
fn lane_sum(value: f32, t: u32) -> f32 {
    var sum = value;
#for i ${LANES_LOG2}
    sum += subgroupShuffleXor(sum, 1u << ${i}u);
#end
    return sum;
}
#else
var<workgroup> lanes: array<f32, ${WG}>;

fn lane_sum(value: f32, t: u32) -> f32 {
    lanes[t] = value;
    workgroupBarrier();
    var sum = value;
    if (t % LANES == 0u) {
        for (var i = 1u; i < LANES; i++) {
            sum += lanes[t + i];
        }
    }
    return sum;
}
#end
