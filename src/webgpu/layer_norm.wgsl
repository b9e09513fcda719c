    {
        var squares = 0.0;
#for i ${OWN}
        squares += x${i} * x${i};
#end
        let factor = 1.0 / sqrt(group_sum(squares, t) / f32(D) + p.eps);
#for i ${OWN}
        if (here${i}) {
            set_input(i${i}, x${i} * factor * ${NORM}${i});
        }
#end
        workgroupBarrier();
#if INT
        make_integers(D / 8u, t);
#end
    }
