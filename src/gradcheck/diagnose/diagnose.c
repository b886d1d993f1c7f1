/* diagnose.c - tries the hypotheses in turn. */
#include <math.h>
#include <stdio.h>

#include "gradcheck/diagnose/diagnose.h"

typedef enum gd_group { NONE, FIRST, KNOWN, PATTERN, SUM, LINEAR, ENTRIES } gd_group;

static const struct {
    gd_group group;
    bool (*holds)(gd_evidence *);
    int which;
    const char *sentence;
} hypotheses[] = {
#define HYPOTHESIS(group, name, which, sentence) {group, gd_holds_##name, which, sentence},
#include "gradcheck/diagnose/hypotheses.def"
#undef HYPOTHESIS
};

/* ---- NaN ---------------------------------------------------------------------------------- */

/* What elements are if their memory held a number before, instead of the probe's NaN. */
typedef struct gd_garbage {
    int64_t unwritten, added, other;
} gd_garbage;

/* Tells a NaN that was in the memory of a gradient from one that the backward computes: with 0 and
 * with another number in its place. */
static gd_garbage look_for_garbage(const gd_evidence *s)
{
    gd_checker *c = s->c;
    gd_garbage found = {0};
    double *gradient[2] = {gd_check_gradient(c), gd_check_gradient(c)}, size = 0;
    for (int k = 0; k < 2 && c->f.probe; k++) {
        c->f.probe->fill = k ? size : 0;
        gd_check_backward(c, s->of[s->set].cotangent, gradient[k]);
        c->f.probe->fill = NAN;
        if (gd_check_failed(c)) return found;
        for (int64_t e = 0; e < s->count && !k; e++) {
            const double g = fabs(gradient[0][s->argument->first + s->at[e]]);
            if (isfinite(g)) size = fmax(size, g);
        }
        size = size > 0 ? ldexp(1, ilogb(size)) : 1;
    }
    for (int64_t e = 0; e < s->count && c->f.probe; e++) {
        const int64_t at = s->argument->first + s->at[e];
        const double zero = gradient[0][at], one = gradient[1][at];
        if (!isnan(s->of[s->set].analytic[e]) || !isfinite(zero) || !isfinite(one)) continue;
        found.unwritten += zero == 0 && one == size;
        found.added += zero != 0 && fabs(one - zero - size) <= 0.01 * size;
        found.other += fabs(one - zero - size) > 0.01 * size;
    }
    if (found.added) found.added += found.unwritten, found.unwritten = 0;
    return found;
}

static void say_not_finite(const gd_evidence *s)
{
    int64_t nan = 0, infinite = 0;
    char *finding = s->out->finding;
    gd_garbage found = {0};
    for (int64_t e = 0; e < s->count; e++) {
        nan += isnan(s->of[s->set].analytic[e]) != 0;
        infinite += isinf(s->of[s->set].analytic[e]) != 0;
    }
    if (nan) found = look_for_garbage(s);
    nan -= found.unwritten + found.added + found.other;
    const struct {
        int64_t count;
        const char *are;
    } kinds[] = {
        {found.unwritten, "are not written: the NaN that their memory held is still there"},
        {found.added, "are added to what their memory held, a NaN, though accumulate is not set"},
        {found.other, "depend on what their memory held, a NaN, though accumulate is not set"},
        {nan, "are NaN"},
        {infinite, "are infinite"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].count)
            gd_check_say(finding, sizeof s->out->finding, "%s%lld of %lld %s", *finding ? ", " : "",
                         (long long)kinds[i].count, (long long)s->count, kinds[i].are);
}

/* ---- All ---------------------------------------------------------------------------------- */

/* Whether the hypotheses of a group are tried, after one of group `said` was reported. */
static bool applies(const gd_evidence *s, gd_group group, gd_group said)
{
    if (group == said || (group == ENTRIES && said == LINEAR)) return false;
    if (group >= LINEAR && !(s->tolerance > 0)) return false;
    return group < ENTRIES || s->missing || s->extra || s->off;
}

void gd_check_diagnose(gd_evidence *s)
{
    const size_t size = sizeof s->out->finding;
    char *finding = s->out->finding;
    say_not_finite(s);
    /* One element shows nothing of the others, and those that could not be judged may be wrong. */
    if (*finding || (s->c->options.only_element && s->argument->count > 1)) return;
    gd_check_evidence(s);
    if (gd_check_failed(s->c) || !s->sure) return;
    gd_group said = NONE;
    for (size_t i = 0; i < sizeof hypotheses / sizeof *hypotheses; i++) {
        const gd_group group = hypotheses[i].group;
        if (group > FIRST && s->unknown) return;
        if (group == LINEAR && !s->y) gd_check_entries(s);
        s->which = hypotheses[i].which;
        s->detail[0] = 0;
        if (!applies(s, group, said) || !hypotheses[i].holds(s)) continue;
        gd_check_say(finding, size, "%s", *finding ? ": " : "");
        gd_check_say(finding, size, hypotheses[i].sentence, s->detail);
        said = group;
        if (group <= KNOWN) return;
    }
    const gd_text where = gd_check_where(s); /* ", all in ..." */
    if (!*finding && *where.text)
        gd_check_say(finding, size, "the wrong elements are%s", where.text + 1);
    else
        gd_check_say(finding, size, "%s", where.text);
}
