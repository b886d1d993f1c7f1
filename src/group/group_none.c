/* group_none.c - of a system that is not POSIX: processes cannot meet, so the only groups are
 * groups of one. */
#include "group/group.h"

const gd_transport gd_transport_cpu = {0};

gd_status gd_group_meet(gd_group *group, const char *folder)
{
    (void)group, (void)folder; /* gd_group_create refuses several ranks */
    return GD_OK;
}

void gd_group_leave(gd_group *group)
{
    (void)group;
}

void gd_group_close(gd_group *group)
{
    (void)group;
}
