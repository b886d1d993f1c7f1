/* embedding.c - the op: rows of a table by their number. README.md has the derivation. */
#include "derivation.h"
#include "gradus/ops.h"
#include "arguments.h"

GD_KERNEL(embedding_forward)
GD_KERNEL(embedding_backward)

/* table [V, C], ids [...] -> y [..., C] */
static gd_status embedding_shape(const gd_call *call, gd_shapes *out)
{
    const gd_tensor *table = call->input[0], *ids = call->input[1];
    if (gd_tensor_ndim(table) != 2 || !gd_dtype_is_real(gd_tensor_dtype(table)))
        return gd_refuse(call, "table is %s, wanted a real [V, C]", gd_kind(table).text);
    if (gd_tensor_dtype(ids) != GD_INT32)
        return gd_refuse(call, "ids is %s, wanted int32", gd_kind(ids).text);
    const int ndim = gd_tensor_ndim(ids);
    if (ndim == GD_MAX_DIMS)
        return gd_refuse(call, "ids has %d dimensions, wanted at most %d", ndim, GD_MAX_DIMS - 1);
    out->output[0] = gd_spec_like(ids);
    out->output[0].dtype = gd_tensor_dtype(table);
    out->output[0].ndim = ndim + 1;
    out->output[0].shape[ndim] = gd_tensor_dim(table, 1);
    return GD_OK;
}

/* dtable[ids[i], :] += dy[i, :] */
static void embedding_derivative(const gd_call *call)
{
    gd_tensor *table = call->input[0], *ids = call->input[1];
    const int64_t n = gd_tensor_count(ids), C = gd_tensor_dim(table, 1);
    gd_tensor *index = gd_expand(gd_reshape(ids, GD_SHAPE(n, 1)), GD_SHAPE(n, C));
    gd_tensor *dy = gd_reshape(call->doutput[0], GD_SHAPE(n, C));
    call->dinput[0] = gd_scatter_add(all_of(table, 0), 0, index, dy);
}

static const gd_case embedding_cases[] = {
    {"v11_c5_ids2x7", NULL, GD_INPUTS({GD_DIMS(11, 5)}, {GD_INDEX(11), GD_DIMS(2, 7)})},
    {"every_id_repeated", NULL, GD_INPUTS({GD_DIMS(3, 4)}, {GD_INDEX(3), GD_DIMS(40)})},
    {"one_row", NULL, GD_INPUTS({GD_DIMS(1, 1)}, {GD_INDEX(1), GD_SCALAR})},
    {"wide", NULL, GD_INPUTS({GD_DIMS(6, 33)}, {GD_INDEX(6), GD_DIMS(9)})},
    {"many_rows", NULL, GD_INPUTS({GD_DIMS(2100, 3)}, {GD_INDEX(9), GD_DIMS(70)})},
    {"even_rows", NULL, GD_INPUTS({GD_DIMS(2304, 16)}, {GD_INDEX(2304), GD_DIMS(96)})},
};

const gd_op gd_op_embedding = {
    .name = "embedding",
    .formula = "y[i, :] = table[ids[i], :]",
    .inputs = 2,
    .input_names = {"table", "ids"},
    .outputs = 1,
    .backward_reads_inputs = GD_BIT(1), /* ids */
    .dinput_float32 = GD_BIT(0),
    .same_bits = true,
    .shape = embedding_shape,
    .forward = GD_ON_DEVICES(embedding_forward),
    .backward = GD_ON_DEVICES(embedding_backward),
    .derivative = embedding_derivative,
    GD_CASES(embedding_cases),
};

gd_tensor *gd_embedding(gd_tensor *table, gd_tensor *ids)
{
    return gd_apply(&gd_op_embedding, (gd_tensor *[]){table, ids}, 2, NULL);
}
