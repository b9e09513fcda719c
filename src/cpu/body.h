// body.h: all bodies of the kernels; included once by each kernels_<isa>.c after its simd_*.h.

#include "cpu/body_attend.h"
#include "cpu/body_math.h"
#include "cpu/body_product.h"
#include "cpu/body_rows.h"
#include "cpu/body_unpack.h"
#include "cpu/kernels.h"

#define NARROW_ENTRY(NAME, TYPE, LAYOUT) [TYPE] = narrow_##NAME,
#define WIDE_ENTRY(NAME, TYPE, LAYOUT) [TYPE] = wide_##NAME,

// The members that every table takes from the body.
#define KERNELS_OF_THE_BODY                                                                                                      \
    .product_f32 = product_f32, .dequantize = dequantize, .quantize = quantize, .rms = rms, .add_scale = add_scale,              \
    .gate = gate, .softcap = softcap, .rotate = rotate, .dot = dot, .merge = merge, .largest = largest, .sum_exp = sum_exp,      \
    .to_f16 = to_f16
