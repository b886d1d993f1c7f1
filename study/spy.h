/* spy.h - watches a backward: what each node adds to the gradient of each of its inputs. */
#ifndef GRADUS_STUDY_SPY_H
#define GRADUS_STUDY_SPY_H

#include "core/core.h"

enum { SPY_SHOWN = 5 }; /* values of a tensor that are looked at */

typedef struct spy_arrival {
    int64_t node; /* its index on the tape */
    int input;
    int64_t count;          /* elements of the input */
    double part[SPY_SHOWN]; /* what the node has added */
    const double *total;    /* what has arrived there so far, as many */
} spy_arrival;

/* The first values of a tensor. False: its memory is free again. */
bool spy_values(const gd_tensor *t, double *shown);

/* Calls `arrived` for each gradient that the nodes now on the tape send. One tape at a time. */
void spy_on(gd_context *ctx, void (*arrived)(const spy_arrival *));

#endif
