/* clock.h - a monotonic clock. */
#ifndef GRADUS_TRAIN_CLOCK_H
#define GRADUS_TRAIN_CLOCK_H

/* Seconds from some fixed moment. */
double clock_now(void);

#endif
