// ref_tower_internal.h: what the reference's two files of towers' operations share.

#ifndef CARAT_REF_REF_TOWER_INTERNAL_H
#define CARAT_REF_REF_TOWER_INTERNAL_H

#include "ops/tower_ops.h"
#include "ref/ref_internal.h"

// A vector as f32, freed by the caller; NULL when it does not exist or memory is short (noted as the backend's failure).
float *ref_vector(struct ref *ref, const struct weight *weight);

// bias may be NULL, out may be x.
void ref_layer_norm(const float *x, const float *weight, const float *bias, float eps, int32_t n, float *out);

void ref_image_prepare(struct tower_ops *tower, struct tensor q, struct tensor k, struct tensor v,
    const struct image_attention *attention, int32_t first);
void ref_image_attend(struct tower_ops *tower, struct tensor q, struct tensor k, struct tensor v,
    const struct image_attention *attention, struct tensor out);
void ref_subsample(struct tower_ops *tower, struct tensor in, int32_t n_channels, const struct weight *weight,
    const struct weight *norm, float eps, struct tensor out);
void ref_audio_attend(struct tower_ops *tower, struct tensor q, struct tensor k, struct tensor v,
    const struct audio_attention *attention, struct tensor out);
void ref_light_conv(struct tower_ops *tower, struct tensor in, const struct weight *weight, const struct weight *norm, float eps,
    struct tensor out);

#endif
