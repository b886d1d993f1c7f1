/* schedule.c - learning rates over a run (optim.h). */
#include "gradus/optim.h"

#include <math.h>

/* The progress of `step` from `start` (0) to `end` (1). */
static double progress(int64_t step, int64_t start, int64_t end)
{
    if (step >= end) return 1;
    return step <= start ? 0 : (double)(step - start) / (double)(end - start);
}

static double half_cosine(double from, double to, double part)
{
    const double pi = 3.14159265358979323846;
    return from + (to - from) * (1 - cos(pi * part)) / 2;
}

static double one_cycle(const gd_schedule *s, int64_t step)
{
    const int64_t top = s->warmup_steps > 0 ? s->warmup_steps - 1 : 0;
    if (step < top) return half_cosine(s->first_rate, s->rate, progress(step, 0, top));
    return half_cosine(s->rate, s->final_rate, progress(step, top, s->steps - 1));
}

double gd_schedule_rate(const gd_schedule *schedule, int64_t step)
{
    if (!schedule) return NAN;
    const gd_schedule *s = schedule;
    if (step < 0) step = 0;
    const bool endless = s->kind == GD_SCHEDULE_CONSTANT || s->kind == GD_SCHEDULE_STEP ||
                         s->kind == GD_SCHEDULE_EXPONENTIAL;
    const bool falls = s->kind == GD_SCHEDULE_STEP || s->kind == GD_SCHEDULE_EXPONENTIAL;
    if (endless ? falls && s->factor == 0 : s->steps <= 0) return NAN; /* unset */
    if (s->kind == GD_SCHEDULE_STEP && s->decay_steps <= 0) return NAN;
    if (!endless && step >= s->steps) return s->final_rate;
    if (s->kind == GD_SCHEDULE_ONE_CYCLE) return one_cycle(s, step);
    if (step < s->warmup_steps) return s->rate * (double)(step + 1) / (double)s->warmup_steps;

    const double fall = s->final_rate - s->rate;
    const int64_t last = s->steps - 1, since = step - s->warmup_steps;
    switch (s->kind) {
    case GD_SCHEDULE_CONSTANT:
        return s->rate;
    case GD_SCHEDULE_LINEAR:
        return s->rate + fall * progress(step, s->warmup_steps, last);
    case GD_SCHEDULE_COSINE:
        return half_cosine(s->rate, s->final_rate, progress(step, s->warmup_steps, last));
    case GD_SCHEDULE_WSD:
        if (s->decay_steps <= 0) return s->rate;
        return s->rate + fall * progress(step, last - s->decay_steps, last);
    case GD_SCHEDULE_STEP:
        return fmax(s->rate * pow(s->factor, (double)(since / s->decay_steps)), s->final_rate);
    case GD_SCHEDULE_EXPONENTIAL:
        return fmax(s->rate * pow(s->factor, (double)since), s->final_rate);
    case GD_SCHEDULE_ONE_CYCLE:
        break;
    }
    return NAN;
}

double gd_plateau_rate(gd_plateau *p, double loss)
{
    if (!p || p->rate == 0) return NAN; /* unset */
    const bool better =
        p->losses == 0 ? !isnan(loss) : loss < p->best * (1 - gd_option(p->threshold, 1e-4));
    if (p->losses == 0 || better) p->best = isnan(loss) ? (double)INFINITY : loss;
    p->losses++;
    p->bad = better ? 0 : p->bad + 1;
    if (p->bad <= p->patience) return p->rate;
    p->bad = 0;
    return p->rate = fmax(p->rate * gd_option(p->factor, 0.1), fmin(p->final_rate, p->rate));
}
