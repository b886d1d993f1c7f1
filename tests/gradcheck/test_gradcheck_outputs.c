/* test_gradcheck_outputs.c - gradcheck of an op that also returns numbers without a gradient. */
#include "check_main.h"
#include "gradus/gradus.h"

#include <string.h>

/* y = 2 x, and the index of each element. */
static gd_status shape(const gd_call *call, gd_shapes *out)
{
    out->output[0] = out->output[1] = gd_spec_like(call->input[0]);
    out->output[1].dtype = GD_INT32;
    return GD_OK;
}

static gd_status forward(const gd_call *call)
{
    const double *x = gd_tensor_data(call->input[0]);
    double *y = gd_tensor_data(call->output[0]);
    int32_t *index = gd_tensor_data(call->output[1]);
    for (int64_t i = 0; i < gd_tensor_count(call->input[0]); i++) {
        y[i] = 2 * x[i];
        index[i] = (int32_t)i;
    }
    return GD_OK;
}

static gd_status backward(const gd_call *call)
{
    double *dx = gd_tensor_data(call->dinput[0]);
    const double *dy = call->doutput[0] ? gd_tensor_data(call->doutput[0]) : NULL;
    for (int64_t i = 0; i < gd_tensor_count(call->dinput[0]); i++)
        dx[i] = (call->accumulate[0] ? dx[i] : 0) + (dy ? 2 * dy[i] : 0);
    return GD_OK;
}

static const gd_case cases[] = {{"2x3", NULL, GD_INPUTS({GD_DIMS(2, 3)})}};

static const gd_op twice = {.name = "twice",
                            .inputs = 1,
                            .input_names = {"x"},
                            .outputs = 2,
                            .shape = shape,
                            .forward = {forward, NULL},
                            .backward = {backward, NULL},
                            GD_CASES(cases)};

TEST(integers_get_no_cotangent)
{
    gd_context *ctx = gd_context_create(NULL);
    gd_gradcheck_report report;
    gd_gradcheck_case(ctx, &twice, &cases[0], NULL, &report);
    ck_assert_no_error(ctx);
    if (report.verdict != GD_VERDICT_PASS) gd_gradcheck_print(&report, stdout, true);
    ck_assert_int_eq(report.verdict, GD_VERDICT_PASS);
    ck_assert_str_eq(report.input[0].behaviour, "");
    gd_gradcheck_report_free(&report);
    gd_context_free(ctx);
}

CHECK_MAIN("gradcheck, integer outputs", 0)
