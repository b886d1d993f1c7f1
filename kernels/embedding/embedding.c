/* embedding.c - the op: rows of a table by their number. README.md has the derivation. */
#include "gradus/ops.h"
#include "kernel.h"

GD_KERNEL(embedding_forward)
GD_KERNEL(embedding_backward)

/* table [V, C], ids [...] -> y [..., C] */
static gd_status embedding_shape(const gd_call *call, gd_spec *output, gd_spec *save,
                                 uint64_t *words)
{
    (void)save;
    (void)words;
    const gd_tensor *table = call->input[0], *ids = call->input[1];
    if (gd_tensor_ndim(table) != 2 || !gd_dtype_is_real(gd_tensor_dtype(table))) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "table is %s %s, wanted a real [V, C]",
                            gd_dtype_name(gd_tensor_dtype(table)), gd_shape_text(table).text);
    }
    if (gd_tensor_dtype(ids) != GD_INT32) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "ids is %s %s, wanted int32",
                            gd_dtype_name(gd_tensor_dtype(ids)), gd_shape_text(ids).text);
    }
    int ndim = gd_tensor_ndim(ids);
    if (ndim == GD_MAX_DIMS) {
        return gd_call_fail(call, GD_ERROR_ARGUMENT, "ids has %d dimensions, wanted at most %d",
                            ndim, GD_MAX_DIMS - 1);
    }
    output[0] = gd_spec_like(ids);
    output[0].dtype = gd_tensor_dtype(table);
    output[0].ndim = ndim + 1;
    output[0].shape[ndim] = gd_tensor_dim(table, 1);
    return GD_OK;
}

#define TABLE(v, c)                           \
    {                                         \
        "table", .ndim = 2, .shape = { v, c } \
    }
#define IDS(v, ...)                                                      \
    {                                                                    \
        "ids", .fill = GD_FILL_INDEX, .b = v, .fixed = true, __VA_ARGS__ \
    }

static const gd_case embedding_cases[] = {
    {.name = "v11_c5_ids2x7",
     .inputs = 2,
     .input = {TABLE(11, 5), IDS(11, .ndim = 2, .shape = {2, 7})}},
    {.name = "every_id_repeated",
     .inputs = 2,
     .input = {TABLE(3, 4), IDS(3, .ndim = 1, .shape = {40})}},
    {.name = "one_row", .inputs = 2, .input = {TABLE(1, 1), IDS(1, .ndim = 0)}},
    {.name = "wide", .inputs = 2, .input = {TABLE(6, 33), IDS(6, .ndim = 1, .shape = {9})}},
    {.name = "many_rows", .inputs = 2, .input = {TABLE(2100, 3), IDS(9, .ndim = 1, .shape = {70})}},
    {.name = "even_rows",
     .inputs = 2,
     .input = {TABLE(2304, 16), IDS(2304, .ndim = 1, .shape = {96})}},
};

const gd_op gd_op_embedding = {
    .name = "embedding",
    .formula = "y[i, :] = table[ids[i], :]",
    .inputs = 2,
    .outputs = 1,
    .backward_reads_inputs = 2, /* ids */
    .dinput_float32 = 1,
    .shape = embedding_shape,
    .forward = GD_ON_DEVICES(embedding_forward),
    .backward = GD_ON_DEVICES(embedding_backward),
    .cases = embedding_cases,
    .case_count = sizeof embedding_cases / sizeof *embedding_cases,
};

gd_tensor *gd_embedding(gd_tensor *table, gd_tensor *ids)
{
    return gd_apply(&gd_op_embedding, (gd_tensor *[]){table, ids}, 2, NULL);
}
