/* schedule.c - learning rates over a run (optim.h). */
#include "gradus/optim.h"

#include <math.h>

/* The progress of `step` from `start` (0) to `end` (1). */
static double progress(int64_t step, int64_t start, int64_t end)
{
    if (step >= end) return 1;
    return step <= start ? 0 : (double)(step - start) / (double)(end - start);
}

double gd_schedule_rate(const gd_schedule *schedule, int64_t step)
{
    if (!schedule) return NAN;
    const gd_schedule *s = schedule;
    if (step < 0) step = 0;
    if (s->kind != GD_SCHEDULE_CONSTANT && step >= s->steps) return s->final_rate;
    if (step < s->warmup_steps) return s->rate * (double)(step + 1) / (double)s->warmup_steps;

    const double pi = 3.14159265358979323846, fall = s->final_rate - s->rate;
    const int64_t last = s->steps - 1;
    switch (s->kind) {
    case GD_SCHEDULE_CONSTANT:
        return s->rate;
    case GD_SCHEDULE_LINEAR:
        return s->rate + fall * progress(step, s->warmup_steps, last);
    case GD_SCHEDULE_COSINE:
        return s->rate + fall * (1 - cos(pi * progress(step, s->warmup_steps, last))) / 2;
    case GD_SCHEDULE_WSD:
        if (s->decay_steps <= 0) return s->rate;
        return s->rate + fall * progress(step, last - s->decay_steps, last);
    }
    return NAN;
}
