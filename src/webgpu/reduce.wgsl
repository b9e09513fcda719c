// reduce: sum and maximum over a workgroup of WG invocations. All of them must call it, none may be ahead by a whole call of the
// same function without a barrier in between: two rooms take turns.
#if SUBGROUPS
const SUBGROUPS_OF_GROUP = (${WG}u + ${SG}u - 1u) / ${SG}u;
var<workgroup> reduce_rooms: array<f32, 2u * SUBGROUPS_OF_GROUP>;
var<private> reduce_turn: u32 = 0u;

// Shuffles by hand: on NVIDIA they are faster than subgroupAdd and subgroupMax.
fn subgroup_sum(value: f32) -> f32 {
    var sum = value;
#for i ${SG_LOG2}
    sum += subgroupShuffleXor(sum, 1u << ${i}u);
#end
    return sum;
}

fn subgroup_max(value: f32) -> f32 {
    var largest = value;
#for i ${SG_LOG2}
    largest = max(largest, subgroupShuffleXor(largest, 1u << ${i}u));
#end
    return largest;
}

fn group_sum(value: f32, t: u32) -> f32 {
    reduce_turn = SUBGROUPS_OF_GROUP - reduce_turn;
    let part = subgroup_sum(value);
    if (t % ${SG}u == 0u) {
        reduce_rooms[reduce_turn + t / ${SG}u] = part;
    }
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < SUBGROUPS_OF_GROUP; i++) {
        sum += reduce_rooms[reduce_turn + i];
    }
    return sum;
}

#if SUMS_AT_ONCE
var<workgroup> reduce_vectors: array<vec4<f32>, 2u * SUBGROUPS_OF_GROUP>;

// Four sums at once.
fn group_sums(value: vec4<f32>, t: u32) -> vec4<f32> {
    reduce_turn = SUBGROUPS_OF_GROUP - reduce_turn;
    let part = vec4<f32>(subgroup_sum(value.x), subgroup_sum(value.y), subgroup_sum(value.z), subgroup_sum(value.w));
    if (t % ${SG}u == 0u) {
        reduce_vectors[reduce_turn + t / ${SG}u] = part;
    }
    workgroupBarrier();
    var sum = vec4<f32>(0.0);
    for (var i = 0u; i < SUBGROUPS_OF_GROUP; i++) {
        sum += reduce_vectors[reduce_turn + i];
    }
    return sum;
}
#end

fn group_max(value: f32, t: u32) -> f32 {
    reduce_turn = SUBGROUPS_OF_GROUP - reduce_turn;
    let part = subgroup_max(value);
    if (t % ${SG}u == 0u) {
        reduce_rooms[reduce_turn + t / ${SG}u] = part;
    }
    workgroupBarrier();
    var largest = reduce_rooms[reduce_turn];
    for (var i = 1u; i < SUBGROUPS_OF_GROUP; i++) {
        largest = max(largest, reduce_rooms[reduce_turn + i]);
    }
    return largest;
}
#else
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

#if SUMS_AT_ONCE
// Four sums at once.
fn group_sums(value: vec4<f32>, t: u32) -> vec4<f32> {
    return vec4<f32>(group_sum(value.x, t), group_sum(value.y, t), group_sum(value.z, t), group_sum(value.w, t));
}
#end

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
#end
