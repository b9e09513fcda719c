// reduce: sum and maximum over a workgroup of WG invocations. All of them must call it.
var<workgroup> reduce_room: array<f32, ${WG}>;

fn group_sum(value: f32, t: u32) -> f32 {
    reduce_room[t] = value;
    workgroupBarrier();
    for (var s = ${WG}u / 2u; s > 0u; s = s >> 1u) {
        if (t < s) {
            reduce_room[t] += reduce_room[t + s];
        }
        workgroupBarrier();
    }
    let sum = reduce_room[0];
    workgroupBarrier();
    return sum;
}

fn group_max(value: f32, t: u32) -> f32 {
    reduce_room[t] = value;
    workgroupBarrier();
    for (var s = ${WG}u / 2u; s > 0u; s = s >> 1u) {
        if (t < s) {
            reduce_room[t] = max(reduce_room[t], reduce_room[t + s]);
        }
        workgroupBarrier();
    }
    let largest = reduce_room[0];
    workgroupBarrier();
    return largest;
}
