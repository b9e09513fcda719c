// fold: left . diag(norm) . right, in the format of w_folded.wgsl. TWO_NORMS: the diagonal is the product of two.
//
// A workgroup makes 32 rows by 256 columns or what is left of them, a whole number of blocks of every type of `right`. DEPTH rows of
// `right` are decoded into workgroup memory at a time; an invocation adds up 4 rows by 8 columns in registers.
struct Params {
    w0: vec4<u32>,
    n_left: u32,  // rows of left
    n_right: u32, // rows of right: columns of left
    n_units: u32, // of 32 columns, in a row of right
    norm_at: u32,
    other_norm_at: u32,
    first_row: u32, // of the result
    row_words: u32, // likewise, 4 bytes each
    low_at: u32,    // in a row of it, likewise
    scales_at: u32,
}
const DEPTH = 8u; // written out below
@group(0) @binding(0) var<uniform> p: Params;
#bind write left: array<f32>
#bind read vectors: array<f32>
#bind write out: array<u32>
#bind read w0: array<vec4<u32>>
#use w_common
#use ${TYPE0} K=0 W=w0 P=p.w0
#use round16

var<workgroup> right_rows: array<vec4<f32>, DEPTH * 64u>;
var<workgroup> left_columns: array<f32, DEPTH * 32u>;
var<workgroup> room: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let columns = t % 32u; // 8 columns from 8 columns on
    let rows = t / 32u;    // 4 rows
    let first_row = group.y * 32u;
#for r 4
    var a${r} = vec4<f32>(0.0);
    var b${r} = vec4<f32>(0.0);
#end
    for (var first = 0u; first < p.n_right; first += DEPTH) {
        let u = group.x * 8u + t % 8u;
        if (t < 8u * DEPTH && first + t / 8u < p.n_right && u < p.n_units) {
            let v = decode0(fetch0((first + t / 8u) * p.w0.x, u), u);
            let at = (t / 8u) * 64u;
#for j 8
            right_rows[at + xi0(u, ${j}u) - group.x * 64u] = v[${j}];
#end
        }
        let i = first + t % 8u;
        var g = 0.0;
        if (i < p.n_right && first_row + t / 8u < p.n_left) {
            g = left[(first_row + t / 8u) * p.n_right + i] * vectors[p.norm_at + i];
#if TWO_NORMS
            g *= vectors[p.other_norm_at + i];
#end
        }
        left_columns[(t % 8u) * 32u + t / 8u] = g;
        workgroupBarrier();
#for i 8
        if (first + ${i}u < p.n_right) {
            let x = right_rows[${i}u * 64u + 2u * columns];
            let y = right_rows[${i}u * 64u + 2u * columns + 1u];
#for r 4
            let g${r} = left_columns[${i}u * 32u + 4u * rows + ${r}u];
            a${r} += g${r} * x;
            b${r} += g${r} * y;
#end
        }
#end
        workgroupBarrier();
    }
    // Eight neighbours have a stretch of 64 columns.
#for r 4
    {
        let row = first_row + 4u * rows + ${r}u;
        room[t] = max(magnitude(a${r}), magnitude(b${r}));
        workgroupBarrier();
        var largest = 0.0;
        for (var i = 0u; i < 8u; i++) {
            largest = max(largest, room[t - t % 8u + i]);
        }
        if (row < p.n_left && group.x * 8u + columns / 4u < p.n_units) {
            let x = rounded(a${r}, largest);
            let y = rounded(b${r}, largest);
            let result = p.first_row + row;
            let at = result * p.row_words + group.x * 64u + 2u * columns;
            out[at] = high_bytes(x);
            out[at + 1u] = high_bytes(y);
            out[at + p.low_at] = low_bytes(x);
            out[at + p.low_at + 1u] = low_bytes(y);
            if (t % 8u == 0u) {
                out[result * p.row_words + p.scales_at + group.x * 4u + columns / 8u] = bitcast<u32>(scale_of(largest));
            }
        }
        workgroupBarrier();
    }
#end
}
