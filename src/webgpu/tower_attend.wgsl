// tower_attend: softmax(q k^T) v for one head, without a mask, over any number of keys.
//
// An invocation holds one query and its sum of values in registers; a workgroup of 64 brings KEYS keys and values at a time into its
// memory, where every invocation reads the same address. The sums are rescaled once per 8 keys. VECTORS = head_dim / 4.
struct Params {
    n_queries: u32,
    n_keys: u32,
    row_vectors: u32, // of a row of q, k, v, out
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write q: array<vec4<f32>>
#bind write k: array<vec4<f32>>
#bind write v: array<vec4<f32>>
#bind write out: array<vec4<f32>>

var<workgroup> keys: array<vec4<f32>, ${KEY_VECTORS}>; // [KEYS][VECTORS]
var<workgroup> values: array<vec4<f32>, ${KEY_VECTORS}>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let head = group.y * ${VECTORS}u;
    let row = group.x * 64u + t;
    let source = min(row, p.n_queries - 1u) * p.row_vectors + head;
#for i VECTORS
    let q${i} = q[source + ${i}u];
    var sum${i} = vec4<f32>(0.0);
#end
    var largest = -3.0e38;
    var total = 0.0;
    for (var first = 0u; first < p.n_keys; first += ${KEYS}u) {
        let n = min(${KEYS}u, p.n_keys - first);
        workgroupBarrier();
        for (var i = t; i < n * ${VECTORS}u; i += 64u) {
            let at = (first + i / ${VECTORS}u) * p.row_vectors + head + i % ${VECTORS}u;
            keys[i] = k[at];
            values[i] = v[at];
        }
        workgroupBarrier();
        for (var key = 0u; key < n; key += 8u) {
#for j 8
            let key${j} = min(key + ${j}u, n - 1u) * ${VECTORS}u;
            var dot${j} = vec4<f32>(0.0);
#for i VECTORS
            dot${j} = fma(q${i}, keys[key${j} + ${i}u], dot${j});
#end
            let score${j} = select(-3.0e38, (dot${j}.x + dot${j}.y) + (dot${j}.z + dot${j}.w), key + ${j}u < n);
#end
            let top = max(max(max(score0, score1), max(score2, score3)), max(max(score4, score5), max(score6, score7)));
            if (top > largest) {
                let shrink = exp(largest - top);
                largest = top;
                total *= shrink;
#for i VECTORS
                sum${i} *= shrink;
#end
            }
#for j 8
            {
                let weight = select(0.0, exp(score${j} - largest), key + ${j}u < n);
                total += weight;
#for i VECTORS
                sum${i} = fma(vec4<f32>(weight), values[key${j} + ${i}u], sum${i});
#end
            }
#end
        }
    }
    if (row < p.n_queries) {
        let factor = 1.0 / total;
        let to = row * p.row_vectors + head;
#for i VECTORS
        out[to + ${i}u] = sum${i} * factor;
#end
    }
}
