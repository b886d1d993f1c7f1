/* choose.c - functions of other ops: where a mask is set, and a draw of categories. */
#include "axis/axis.h"
#include "derivation.h"
#include "gradus/random.h"
#include "arguments.h"

/* What nonzero takes: its arguments are checked by a record, as an op's are. */
static gd_status nonzero_shape(const gd_call *call, gd_shapes *out)
{
    (void)out;
    if (gd_tensor_count(call->input[0]) > INT32_MAX)
        return gd_refuse(call, "mask is %s, wanted at most %d elements",
                         gd_shape_text(call->input[0]).text, INT32_MAX);
    if (gd_tensor_count(call->input[2]) == 1) return GD_OK;
    return gd_refuse(call, "count is %s, wanted one element", gd_shape_text(call->input[2]).text);
}

static const gd_op nonzero = {.name = "nonzero",
                              .signature = "mask:int32 places:int32[K] count:int32",
                              .shape = nonzero_shape};

/* ends[i] counts what is set up to element i: a place goes to element ends - 1 of the list, the
 * others to one behind it. Sums of whole numbers in double are exact. */
gd_status gd_nonzero(gd_tensor *mask, gd_tensor *places, gd_tensor *count)
{
    gd_tensor *in[] = {mask, places, count};
    gd_context *ctx = gd_tensor_context(mask);
    if (!gd_accepts(&nonzero, in, 3, NULL)) return ctx ? gd_error_status(ctx) : GD_ERROR_ARGUMENT;
    const int64_t n = gd_tensor_count(mask), k = gd_tensor_count(places), most = n > k ? n : k;
    gd_tensor *list = gd_constant(ctx, GD_FLOAT64, GD_SHAPE(most + 1), 0);
    gd_tensor *total = gd_constant(ctx, GD_FLOAT64, GD_SHAPE(1), 0);
    if (n > 0) {
        gd_tensor *flat = gd_reshape(mask, GD_SHAPE(n));
        gd_tensor *set = gd_cast(gd_ne(flat, number(flat, 0)), GD_FLOAT64);
        gd_tensor *ends = gd_cumsum(set, 0);
        gd_tensor *at = plus(gd_cumsum(gd_constant(ctx, GD_FLOAT64, GD_SHAPE(n), 1), 0), -1);
        gd_tensor *to = gd_where(flat, plus(ends, -1), number(set, (double)most));
        list = gd_scatter_add(list, 0, gd_cast(to, GD_INT32), at);
        total = gd_slice(ends, 0, n - 1, n);
    }
    gd_tensor *first = gd_cast(gd_slice(list, 0, 0, k), GD_INT32);
    if (first) gd_tensor_copy(places, first);
    gd_tensor *sum =
        gd_reshape(gd_cast(total, GD_INT32), gd_tensor_ndim(count), gd_tensor_shape(count));
    if (sum) gd_tensor_copy(count, sum);
    return gd_error_status(ctx);
}

static gd_status multinomial_shape(const gd_call *call, gd_shapes *out)
{
    (void)out;
    if (gd_tensor_dim(call->input[0], -1) > 0) return GD_OK;
    return gd_refuse(call, "weights is %s, wanted [..., V] with V > 0",
                     gd_shape_text(call->input[0]).text);
}

static const gd_op multinomial = {
    .name = "multinomial", .signature = "weights[..., V]", .shape = multinomial_shape};

/* k is the first category whose sum exceeds a fraction of the total; where weights[k] is 0 the sum
 * exceeds nothing that it did not exceed before. Near the smallest number a fraction below 1 may be
 * rounded to the total, which the last sum exceeds, too, then. */
gd_tensor *gd_multinomial(gd_tensor *weights)
{
    if (!gd_accepts(&multinomial, &weights, 1, NULL)) return NULL;
    gd_context *ctx = gd_tensor_context(weights);
    const int last = gd_tensor_ndim(weights) - 1;
    gd_tensor *sums = gd_cumsum(gd_cast(gd_detach(weights), GD_FLOAT64), last);
    gd_tensor *total = gd_narrow(sums, last, gd_tensor_dim(weights, last) - 1, 1);
    if (!total) return NULL;
    gd_tensor *fraction = gd_constant(ctx, GD_FLOAT64, last + 1, gd_tensor_shape(total), 0);
    if (!fraction || gd_random_uniform(fraction, 0, 1)) return NULL;
    gd_tensor *below = gd_cast(gd_le(sums, mul(fraction, total)), GD_FLOAT64);
    gd_tensor *k = gd_sum(only(gd_lt(sums, total), below), &last, 1, true);
    k = gd_where(gd_lt(total, number(total, INFINITY)), k, number(total, -1));
    k = gd_where(gd_gt(total, number(total, 0)), k, number(total, -1));
    return gd_cast(gd_reshape(k, last, gd_tensor_shape(weights)), GD_INT32);
}
