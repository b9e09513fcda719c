#if !INTEGER
#for j 8
            let x${j} = xs[slot(xi${K}(inside, ${j}u))];
#end
            let x = array<vec4<f32>, 8>(x0, x1, x2, x3, x4, x5, x6, x7);
            let pairs = vec4<f32>(pair_sum(x0, x1), pair_sum(x2, x3), pair_sum(x4, x5), pair_sum(x6, x7));
#end
