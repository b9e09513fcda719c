// ref.h: the scalar reference backend. Slow and obvious; it says what each operation means and judges the others.

#ifndef CARAT_REF_REF_H
#define CARAT_REF_REF_H

#include "ops/ops.h"

struct ops *ref_ops_new(struct carat_error *err);

#endif
