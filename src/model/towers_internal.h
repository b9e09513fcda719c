// towers_internal.h: what the files of the towers share.

#ifndef CARAT_MODEL_TOWERS_INTERNAL_H
#define CARAT_MODEL_TOWERS_INTERNAL_H

#include "media/sound.h"
#include "model/towers.h"

enum { MAX_ORPHANS = 16 };

struct towers {
    struct tower_ops *ops; // owned; NULL when there is no tower
    struct vision_tower *vision;
    struct audio_tower *audio;
    bool loaded[TOWER_KINDS];
    struct soft_tokens *cache;    // most recently used first
    int32_t orphans[MAX_ORPHANS]; // tickets of abandoned jobs
    int32_t n_orphans;
    uint32_t probe; // where read-backs that only mark the end of a step go
};

void cache_empty(struct towers *towers);

#endif
