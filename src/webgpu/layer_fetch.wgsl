    ${VAR} ${NAME}${INTO} = fetch${K}(${AT} + min(((${ITEM}) / ${STEPS}u * ${GROUPS}u + ${GROUP}_group) * N + g, ${ROWS} - 1u) * W${K}.x,
        min((${ITEM}) % ${STEPS}u * ${LANES}u + ${GROUP}_lane, ${UNITS}u - 1u));
