// fold: gate . diag(norm) . down, times ${FACTOR}, as a matrix of Q8_0 in ${TERMS} terms: the rows of each term are what is left of those
// before it.
//
// A workgroup makes 32 rows by 256 columns, a whole number of blocks of every type of `down`. DEPTH rows of `down` are decoded into
// workgroup memory at a time; an invocation adds up 4 rows by 8 columns in registers.
struct Params {
    w0: vec4<u32>,
    n_gate: u32, // rows of gate and of a term
    n_down: u32, // rows of down: columns of gate
    norm_at: u32,
    row_words: u32,  // of the result, 4 bytes each
    scales_at: u32,  // in a row of it, 4 bytes each
}
const DEPTH = 8u; // written out below
@group(0) @binding(0) var<uniform> p: Params;
#bind write gate: array<f32>
#bind read vectors: array<f32>
#bind write out: array<u32>
#bind read w0: array<vec4<u32>>
#use w_common
#use ${TYPE0} K=0 W=w0 P=p.w0
#use half_bits

var<workgroup> down_rows: array<vec4<f32>, DEPTH * 64u>;
var<workgroup> gate_columns: array<f32, DEPTH * 32u>;
var<workgroup> room: array<f32, 256>;

fn largest_of(a: vec4<f32>, b: vec4<f32>) -> f32 {
    let m = max(abs(a), abs(b));
    return max(max(m.x, m.y), max(m.z, m.w));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let columns = t % 32u; // 8 columns from 8 columns on
    let rows = t / 32u;    // 4 rows
    let first_row = group.y * 32u;
#for r 4
    var a${r} = vec4<f32>(0.0);
    var b${r} = vec4<f32>(0.0);
#end
    for (var first = 0u; first < p.n_down; first += DEPTH) {
        if (t < 8u * DEPTH && first + t / 8u < p.n_down) {
            let u = group.x * 8u + t % 8u;
            let v = decode0(fetch0((first + t / 8u) * p.w0.x, u), u);
            let at = (t / 8u) * 64u;
#for j 8
            down_rows[at + xi0(u, ${j}u) - group.x * 64u] = v[${j}];
#end
        }
        let i = first + t % 8u;
        var g = 0.0;
        if (i < p.n_down && first_row + t / 8u < p.n_gate) {
            g = gate[(first_row + t / 8u) * p.n_down + i] * vectors[p.norm_at + i] * ${FACTOR}.0;
        }
        gate_columns[(t % 8u) * 32u + t / 8u] = g;
        workgroupBarrier();
#for i 8
        if (first + ${i}u < p.n_down) {
            let x = down_rows[${i}u * 64u + 2u * columns];
            let y = down_rows[${i}u * 64u + 2u * columns + 1u];
#for r 4
            let g${r} = gate_columns[${i}u * 32u + 4u * rows + ${r}u];
            a${r} += g${r} * x;
            b${r} += g${r} * y;
#end
        }
#end
        workgroupBarrier();
    }
    // Four neighbours have a block of 32 columns, eight a word of two scales.
#for r 4
    {
        let row = first_row + 4u * rows + ${r}u;
        let exists = row < p.n_gate;
        for (var term = 0u; term < ${TERMS}u; term++) {
            room[t] = largest_of(a${r}, b${r});
            workgroupBarrier();
            let own = t - t % 4u;
            let other = own ^ 4u;
            let bits = half_bits(max(max(room[own], room[own + 1u]), max(room[own + 2u], room[own + 3u])) / 127.0);
            let other_bits = half_bits(max(max(room[other], room[other + 1u]), max(room[other + 2u], room[other + 3u])) / 127.0);
            let scale = value_of_half(bits);
            let x = round(clamp(a${r} * select(0.0, 1.0 / scale, bits > 0u), vec4<f32>(-127.0), vec4<f32>(127.0)));
            let y = round(clamp(b${r} * select(0.0, 1.0 / scale, bits > 0u), vec4<f32>(-127.0), vec4<f32>(127.0)));
            a${r} -= x * scale;
            b${r} -= y * scale;
            if (exists) {
                let at = (term * p.n_gate + row) * p.row_words;
                out[at + group.x * 64u + 2u * columns] = pack4xI8(vec4<i32>(x));
                out[at + group.x * 64u + 2u * columns + 1u] = pack4xI8(vec4<i32>(y));
                if (t % 8u == 0u) {
                    out[at + p.scales_at + group.x * 4u + columns / 8u] = bits | (other_bits << 16u);
                }
            }
            workgroupBarrier();
        }
    }
#end
}
