    {
        let ahead = ${ITEM};
        let row = min((ahead / ${QKV_STEPS}u * ${QKV_GROUPS}u + qkv_group) * N + g, QKV_ROWS - 1u);
        let unit = min(ahead % ${QKV_STEPS}u * ${QKV_LANES}u + qkv_lane, ${D_UNITS}u - 1u);
        let part = part_of(row);
        let chosen = slot_of_part(part);
#for k ${QKV_SLOTS}
        if (chosen == ${k}u) {
            qkv_${k}_${INTO} = fetch${k}(p.at[0][part] + (row - first_of_part(part)) * W${k}.x, unit);
        }
#end
    }
