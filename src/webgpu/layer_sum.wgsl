#if LOG2_IS_SMALL
#for i ${LOG2}
    ${SUM} += subgroupShuffleXor(${SUM}, 1u << ${i}u);
#end
#else
    workgroupBarrier();
    partial[t] = ${SUM};
    workgroupBarrier();
    ${SUM} = 0.0;
    for (var i = 0u; i < ${LANES}; i++) {
        ${SUM} += partial[t / ${LANES} * ${LANES} + i];
    }
    workgroupBarrier();
#end
