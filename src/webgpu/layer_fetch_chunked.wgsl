    ${VAR} ${NAME}${INTO} = fetch${K}(p.at[${K_AT}][${K_IN}] + min(((${ITEM}) / ${CHUNKS_STEPS}u * ${GROUPS}u + ${NAME}_group) * N + g, ${ROWS} - 1u) * W${K}.x,
        min((${ITEM}) % ${CHUNKS_STEPS}u * ${LANES}u + ${NAME}_lane, ${UNITS}u - 1u));
