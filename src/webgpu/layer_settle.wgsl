#for i ${OWN}
    let norm_${NAME}${i} = vectors[${NORM_AT} + i${i}];
    var term_${NAME}${i} = 0u;
#end
    {
        workgroupBarrier();
        var missing = true;
#use layer_wait MISSING=missing
            missing = false;
#for i ${OWN}
            term_${NAME}${i} = atomicLoad(&exchange[p.now + ${FROM} + i${i}]);
            missing = missing || term_${NAME}${i} == 0u;
#end
#use layer_wait_end
        var squares = 0.0;
#for i ${OWN}
        squares += select(0.0, value_of(term_${NAME}${i}) * value_of(term_${NAME}${i}), here${i});
#end
        let factor = 1.0 / sqrt(group_sum(squares, t) / f32(D) + p.eps);
#for i ${OWN}
        x${i} += select(0.0, value_of(term_${NAME}${i}) * factor * norm_${NAME}${i}, here${i});
#end
    }
