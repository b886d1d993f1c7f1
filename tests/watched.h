/* watched.h - contexts whose memory is watched as the environment of the tests says. */
#ifndef GRADUS_TEST_WATCHED_H
#define GRADUS_TEST_WATCHED_H

#include <stdlib.h>
#include <string.h>

#include "gradus/gradus.h"

/* A context whose fresh memory is NaN, unless GRADUS_TEST_NO_POISON is in the environment. With
 * GRADUS_TEST_GUARD=margins or exact it has that gd_guard. */
static inline gd_context *watched_context(gd_context_options options)
{
    const char *guard = getenv("GRADUS_TEST_GUARD");
    options.poison = !getenv("GRADUS_TEST_NO_POISON");
    if (guard) options.guard = strcmp(guard, "exact") ? GD_GUARD_MARGINS : GD_GUARD_EXACT;
    return gd_context_create(&options);
}

#endif
