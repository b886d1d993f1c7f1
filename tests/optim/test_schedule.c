/* test_schedule.c - learning rates at the steps where something begins, ends or bends. */
#include "check_main.h"
#include "gradus/optim.h"

#include <math.h>

TEST(rates)
{
    static const struct {
        gd_schedule schedule;
        int64_t step;
        double rate;
    } rows[] = {
        {{GD_SCHEDULE_CONSTANT, 2, 0, 10, 0, 0, 0, 0}, 0, 2},
        {{GD_SCHEDULE_CONSTANT, 2, 0, 10, 0, 0, 0, 0}, 1000, 2},
        {{GD_SCHEDULE_CONSTANT, 2, 0, 10, 4, 0, 0, 0}, 0, 0.5},
        {{GD_SCHEDULE_CONSTANT, 2, 0, 10, 4, 0, 0, 0}, 3, 2},
        {{GD_SCHEDULE_LINEAR, 2, 1, 11, 0, 0, 0, 0}, 0, 2},
        {{GD_SCHEDULE_LINEAR, 2, 1, 11, 0, 0, 0, 0}, 5, 1.5},
        {{GD_SCHEDULE_LINEAR, 2, 1, 11, 0, 0, 0, 0}, 10, 1},
        {{GD_SCHEDULE_LINEAR, 2, 1, 11, 0, 0, 0, 0}, 11, 1},
        {{GD_SCHEDULE_LINEAR, 2, 1, 11, 2, 0, 0, 0}, 1, 2},
        {{GD_SCHEDULE_LINEAR, 2, 1, 11, 2, 0, 0, 0}, 2, 2},
        {{GD_SCHEDULE_LINEAR, 2, 1, 11, 2, 0, 0, 0}, 6, 1.5},
        {{GD_SCHEDULE_COSINE, 2, 0, 101, 0, 0, 0, 0}, 0, 2},
        {{GD_SCHEDULE_COSINE, 2, 0, 101, 0, 0, 0, 0}, 50, 1},
        {{GD_SCHEDULE_COSINE, 2, 0, 101, 0, 0, 0, 0}, 25, 1.7071067811865475},
        {{GD_SCHEDULE_COSINE, 2, 0.5, 101, 0, 0, 0, 0}, 100, 0.5},
        {{GD_SCHEDULE_COSINE, 2, 0.5, 101, 10, 0, 0, 0}, 0, 0.2},
        {{GD_SCHEDULE_COSINE, 2, 0.5, 101, 10, 0, 0, 0}, 55, 1.25},
        {{GD_SCHEDULE_COSINE, 2, 0.5, 101, 10, 0, 0, 0}, 5000, 0.5},
        {{GD_SCHEDULE_WSD, 2, 0, 100, 10, 20, 0, 0}, 4, 1},
        {{GD_SCHEDULE_WSD, 2, 0, 100, 10, 20, 0, 0}, 50, 2},
        {{GD_SCHEDULE_WSD, 2, 0, 100, 10, 20, 0, 0}, 79, 2},
        {{GD_SCHEDULE_WSD, 2, 0, 100, 10, 20, 0, 0}, 80, 1.9},
        {{GD_SCHEDULE_WSD, 2, 0, 100, 10, 20, 0, 0}, 89, 1},
        {{GD_SCHEDULE_WSD, 2, 0, 100, 10, 20, 0, 0}, 99, 0},
        {{GD_SCHEDULE_WSD, 2, 0, 100, 10, 0, 0, 0}, 99, 2},
        {{GD_SCHEDULE_COSINE, 2, 1, 5, 10, 0, 0, 0}, 3, 0.8}, /* the run ends in its warm-up */
        {{GD_SCHEDULE_COSINE, 2, 1, 5, 10, 0, 0, 0}, 5, 1},
        {{GD_SCHEDULE_LINEAR, 2, 1, 1, 0, 0, 0, 0}, 0, 1},
        {{GD_SCHEDULE_LINEAR, 2, 1, 11, 0, 0, 0, 0}, -5, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double rate = gd_schedule_rate(&rows[i].schedule, rows[i].step);
        ck_assert_msg(fabs(rate - rows[i].rate) < 1e-12, "row %zu: rate %g, wanted %g", i, rate,
                      rows[i].rate);
    }
    ck_assert(isnan(gd_schedule_rate(NULL, 0)));
}

/* As PyTorch's StepLR(3, 0.5), ExponentialLR(0.9) and OneCycleLR(total_steps=10, pct_start=0.3). */
TEST(rates_of_pytorch)
{
    static const double one_cycle[10] = {0.02,
                                         0.26,
                                         0.5,
                                         0.47524231600673683,
                                         0.40587282697488153,
                                         0.30563101096814466,
                                         0.19437098903185537,
                                         0.094129173025118487,
                                         0.024759683993263143,
                                         2e-6};
    const gd_schedule steps = {
        .kind = GD_SCHEDULE_STEP, .rate = 0.5, .decay_steps = 3, .factor = 0.5};
    const gd_schedule exponential = {
        .kind = GD_SCHEDULE_EXPONENTIAL, .rate = 0.5, .factor = 0.9, .final_rate = 0.3};
    const gd_schedule cycle = {.kind = GD_SCHEDULE_ONE_CYCLE,
                               .rate = 0.5,
                               .first_rate = 0.5 / 25,
                               .final_rate = 0.5 / 25e4,
                               .steps = 10,
                               .warmup_steps = 3};
    double falling = 0.5;
    for (int i = 0; i < 10; i++) {
        ck_assert_double_eq(gd_schedule_rate(&steps, i), 0.5 / (1 << i / 3));
        ck_assert_double_eq_tol(gd_schedule_rate(&exponential, i), fmax(falling, 0.3), 1e-15);
        ck_assert_double_eq_tol(gd_schedule_rate(&cycle, i), one_cycle[i], 1e-15);
        falling *= 0.9;
    }
    ck_assert_double_eq(gd_schedule_rate(&cycle, 10), 2e-6);
    const gd_schedule warm = {
        .kind = GD_SCHEDULE_STEP, .rate = 0.5, .decay_steps = 2, .factor = 0.1, .warmup_steps = 5};
    ck_assert_double_eq_tol(gd_schedule_rate(&warm, 4), 0.5, 1e-15);
    ck_assert_double_eq_tol(gd_schedule_rate(&warm, 6), 0.5, 1e-15);
    ck_assert_double_eq_tol(gd_schedule_rate(&warm, 7), 0.05, 1e-15);
    const gd_schedule high = {.kind = GD_SCHEDULE_ONE_CYCLE, .rate = 2, .steps = 5}; /* no rise */
    ck_assert_double_eq(gd_schedule_rate(&high, 0), 2);
    ck_assert_double_eq_tol(gd_schedule_rate(&high, 2), 1, 1e-15);
}

/* As PyTorch's ReduceLROnPlateau(factor=0.5, patience=2, min_lr=0.1). */
TEST(a_plateau)
{
    static const double losses[] = {1,  .9, .95, .9, .89995, .8,  .8,  .8,  .8,
                                    .8, .8, .8,  .8, .7,     NAN, .71, .72, .73};
    static const double rates[] = {.5,   .5,   .5, .5, .25, .25, .25, .25, .125,
                                   .125, .125, .1, .1, .1,  .1,  .1,  .1,  .1};
    gd_plateau p = {.rate = 0.5, .factor = 0.5, .patience = 2, .final_rate = 0.1};
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        const double rate = gd_plateau_rate(&p, losses[i]);
        ck_assert_msg(rate == rates[i], "loss %zu: rate %g, wanted %g", i, rate, rates[i]);
    }
    p = (gd_plateau){
        .rate = 1}; /* the first loss is NaN; a tenth after the second that is not better */
    ck_assert_double_eq(gd_plateau_rate(&p, NAN), 0.1);
    ck_assert_double_eq(gd_plateau_rate(&p, 5), 0.1);
    ck_assert_double_eq_tol(gd_plateau_rate(&p, 5), 0.01, 1e-15);
    ck_assert(isnan(gd_plateau_rate(NULL, 1)));
}

CHECK_MAIN("schedule")
