/* group_none.c - replaces group.c on a system that is not POSIX: the only groups are groups of one,
 * which are NULL. */
#include "core/core.h"
#include "group/group.h"
#include "optim/params.h"

#include <string.h>

gd_group *gd_group_create(gd_context *ctx, const gd_group_options *options)
{
    if (options && options->problem[0])
        gd_fail(ctx, GD_ERROR_ARGUMENT, "group_create: %.*s", (int)sizeof options->problem,
                options->problem);
    else if (options && options->ranks != 1)
        gd_fail(ctx, GD_ERROR_UNSUPPORTED,
                "group_create: ranks is %d, wanted 1: there are no groups of several processes "
                "on this system",
                options->ranks);
    return NULL;
}

void gd_group_free(gd_group *group)
{
    (void)group;
}

/* replicate.c calls these two only if there is more than one rank. */
gd_status gd_group_begin(gd_group *group, const char *who)
{
    (void)group, (void)who;
    return GD_OK;
}

gd_status gd_group_all_gather_within(gd_group *group, const void *mine, size_t bytes, void *all)
{
    return gd_group_all_gather_bytes(group, mine, bytes, all);
}

int gd_group_rank(const gd_group *group)
{
    (void)group;
    return 0;
}

int gd_group_ranks(const gd_group *group)
{
    (void)group;
    return 1;
}

gd_status gd_group_broadcast(gd_group *group, gd_tensor *t, int root)
{
    (void)group, (void)root;
    return gd_tensor_status(t);
}

gd_status gd_group_all_reduce(gd_group *group, gd_tensor *t, bool mean)
{
    (void)mean;
    return gd_group_broadcast(group, t, 0);
}

gd_status gd_group_reduce_scatter(gd_group *group, gd_tensor *t, bool mean)
{
    (void)mean;
    return gd_group_broadcast(group, t, 0);
}

gd_status gd_group_all_gather(gd_group *group, gd_tensor *t)
{
    return gd_group_broadcast(group, t, 0);
}

void gd_group_slice(const gd_group *group, int rank, int64_t n, int64_t *begin, int64_t *end)
{
    (void)group, (void)rank;
    *begin = 0;
    *end = n;
}

gd_status gd_group_broadcast_bytes(gd_group *group, void *data, size_t bytes)
{
    (void)group, (void)data, (void)bytes;
    return GD_OK;
}

gd_status gd_group_all_gather_bytes(gd_group *group, const void *mine, size_t bytes, void *all)
{
    (void)group;
    if (bytes) memcpy(all, mine, bytes);
    return GD_OK;
}
