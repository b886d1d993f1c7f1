/* stop.h - stopping on a signal: Ctrl-C (SIGINT), SIGTERM, SIGHUP when the terminal is closed, or
 * SIGPIPE when nobody reads stdout any more. SIGHUP and SIGPIPE stay ignored if they were. */
#ifndef GRADUS_TRAIN_STOP_H
#define GRADUS_TRAIN_STOP_H

#include <stdbool.h>

/* From now on the first of these signals is only noted; a second one, 50 ms later or more, ends the
 * program at once. */
void stop_watch(void);

/* What a terminal shows at once for each of the two; copied. Without a call, nothing. */
void stop_answer(const char *first, const char *second);

bool stop_asked(void);

#endif
