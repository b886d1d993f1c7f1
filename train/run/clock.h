/* clock.h - what time it is. */
#ifndef GRADUS_TRAIN_CLOCK_H
#define GRADUS_TRAIN_CLOCK_H

/* Seconds from some fixed moment. */
double clock_now(void);

#endif
