// join_splits: adds the sums that workgroups of `matmul` made over different columns, and finishes as it would have.
struct Params {
    n_rows: u32,
    n_batch: u32,
    n_splits: u32,
    out_cols: u32,
    out_first: u32,
    bias_at: u32,
    other_cols: u32,
    other_first: u32,
    cap: f32,
    out_min: f32,
    out_max: f32,
    grid_x: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#bind write sums: array<f32>
#if BIAS
#bind read vectors: array<f32>
#end
#if PER_LAYER
#bind write per_layer: array<f32>
#end
#bind write out: array<f32>
#use activation

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * p.grid_x + id.x;
    let n = p.n_rows * p.n_batch;
    if (i >= n) {
        return;
    }
    let row = i / p.n_rows;
    let o = i % p.n_rows;
    var y = 0.0;
    for (var s = 0u; s < p.n_splits; s++) {
        y += sums[s * n + i];
    }
#if BIAS
    y += vectors[p.bias_at + o];
#end
#if CLIP
    y = clamp(y, p.out_min, p.out_max);
#end
#if CAP
    y = p.cap * bounded_tanh(y / p.cap);
#end
#if PER_LAYER
    y = gelu_tanh(y) * per_layer[row * p.other_cols + p.other_first + o];
#end
    let at = row * p.out_cols + p.out_first + o;
#if GATES
    y *= activate(out[at]);
#end
#if ACTIVATES
    y = activate(y);
#end
    out[at] = y;
}
