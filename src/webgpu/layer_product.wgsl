    let ${NAME}_lane = t % ${LANES}u;
    let ${NAME}_group = t / ${LANES}u;
#for s ${AHEAD}
#use layer_fetch_chunked INTO=${s} ITEM=${s}u VAR=var
#end
    {
        var sum = 0.0;
        var step = 0u;
        var chunk = 0u;
        var row = ${NAME}_group * N + g;
        for (var item = 0u; item < ${ITEMS}u + p.zero; item += ${AHEAD}u) {
#for s ${AHEAD}
            if (item + ${s}u < ${ITEMS}u) {
                if (step == 0u && (item + ${s}u == 0u || ${CHUNKS}u > 1u)) {
#for i ${TAKES}
                    var taken${i} = 0u;
#end
                    workgroupBarrier();
                    var missing = true;
#use layer_wait MISSING=missing
                        missing = false;
#for i ${TAKES}
                        taken${i} = atomicLoad(&exchange[p.now + ${FROM} + min(chunk * ${CHUNK}u * 32u + ${i}u * WG + t, ${INPUTS}u - 1u)]);
                        missing = missing || taken${i} == 0u;
#end
#use layer_wait_end
#for i ${TAKES}
                    if (${i}u * WG + t < ${CHUNK}u * 32u) {
                        set_input(${i}u * WG + t, value_of(taken${i}));
                    }
#end
                    workgroupBarrier();
#if INT
                    make_integers(${CHUNK}u * 4u, t);
#end
                }
                let inside = step * ${LANES}u + ${NAME}_lane;
#use layer_dot K=${K} RAW=${NAME}${s} SUM=sum UNITS=${UNITS} FIRST=chunk*${CHUNK}u INT=${INT}
#use layer_fetch_chunked INTO=${s} ITEM=item+${s}u+${AHEAD}u VAR=
                step++;
                if (step == ${STEPS}u) {
                    step = 0u;
                    chunk++;
                }
                if (chunk == ${CHUNKS}u) {
#use layer_sum SUM=sum LANES=${LANES}u LOG2=${LOG2} LOG2_IS_SMALL=${LOG2_IS_SMALL}
                    if (${NAME}_lane == 0u && row < ${ROWS}) {
#if TO_TERM
                        term[row] = select(sum, no_number(), gave_up);
#else
                        put(${INTO_AT} + row, sum);
#end
                    }
                    sum = 0.0;
                    chunk = 0u;
                    row += ${GROUPS}u * N;
                }
            }
#end
        }
    }
