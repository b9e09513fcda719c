// tower_backend.c: which backend's operations the towers run on.

#include <string.h>

#include "cpu/cpu_tower.h"
#include "model/towers.h"
#include "ref/ref_tower.h"
#ifdef CARAT_HAVE_WEBGPU
#include "webgpu/webgpu_tower.h"
#endif

struct tower_ops *tower_ops_of(struct ops *ops, struct carat_error *err)
{
    if (strcmp(ops->name, "ref") == 0)
        return ref_tower_ops_new(ops, err);
    if (strcmp(ops->name, "cpu") == 0)
        return cpu_tower_ops_new(ops, err);
#ifdef CARAT_HAVE_WEBGPU
    if (strcmp(ops->name, "webgpu") == 0)
        return webgpu_tower_ops_new(ops, err);
#endif
    fail(err, CARAT_UNSUPPORTED, "images and sounds are not supported on the backend '%s'", ops->name);
    return NULL;
}
