    for (var tries = 0u; ${MISSING} && !gave_up; tries++) {
        gave_up = tries > ${PATIENCE}u;
