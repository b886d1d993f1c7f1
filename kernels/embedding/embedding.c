/* embedding.c - the op: rows of a table by their number. README.md has the derivation. */
#include "derivation.h"
#include "gradus/ops.h"
#include "arguments.h"

GD_KERNEL_PAIR(embedding)

/* table [V, C], ids [...] -> y [..., C] */
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
    .formula = "y[i, :] = table[ids[i], :]",
    .signature = "table[V, C] ids:int32[...] -> y[..., C]",
    .backward_reads_inputs = GD_BIT(1), /* ids */
    .dinput_float32 = GD_BIT(0),
    .dinput_rows = GD_BIT(0),
    GD_KERNELS(embedding),
    .derivative = embedding_derivative,
    GD_CASES(embedding_cases),
};

gd_tensor *gd_embedding(gd_tensor *table, gd_tensor *ids) GD_APPLIES(embedding, NULL, table, ids)
