// lane_sum: the sum over LANES = 2^LANES_LOG2 neighbours, of which the first one gets it. All invocations of the workgroup must call it.
// N: a suffix for the name, where a kernel has two such functions.
#if LANE_SHUFFLES
fn lane_sum${N}(value: f32, t: u32) -> f32 {
    var sum = value;
#for i ${LANES_LOG2}
    sum += subgroupShuffleXor(sum, 1u << ${i}u);
#end
    return sum;
}
#else
var<workgroup> lanes${N}: array<f32, ${WG}>;

fn lane_sum${N}(value: f32, t: u32) -> f32 {
    lanes${N}[t] = value;
    workgroupBarrier();
    var sum = value;
    if (t % ${LANES}u == 0u) {
        for (var i = 1u; i < ${LANES}u; i++) {
            sum += lanes${N}[t + i];
        }
    }
    return sum;
}
#end
