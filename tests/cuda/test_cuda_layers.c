/* test_cuda_layers.c - layers, initial values and prints on a GPU: the text of both devices is
 * the same. */
#include "gpu.h"

#include <string.h>

/* What a group with one of each layer, and an output of them, look like. */
static void draw(gd_device device, char *text, size_t size)
{
    gd_context *ctx = watched_context((gd_context_options){.device = device, .seed = 5});
    gd_params *p = gd_params_create(ctx, GD_FLOAT32);
    const gd_conv_layer conv = gd_make_conv(p, 0, gd_conv2d, 1, 4, 3, 3, NULL, "conv");
    const gd_norm_layer norm = gd_make_norm(p, GD_BATCH_NORM, 0, 4, "norm");
    const gd_rnn_layers gru = gd_make_rnn(p, 0, 3, 4, 8, 2, "gru");
    const gd_attention_layer attention = gd_make_attention(p, 0, 8, 2, "attention");
    const gd_linear_layer out = gd_make_linear(p, GD_NO_BIAS, 8, 3, "out");
    gd_params_addf(p, 0, GD_SHAPE(4, 4), (gd_init){GD_INIT_ORTHOGONAL, 1, 0}, "q%d", 1);
    gd_params_finish(p);
    gd_tensor *x = gd_arange(ctx, GD_FLOAT32, 0, 72, 1);
    gd_tensor *h = gd_run_conv(&conv, gd_reshape(gd_scale(x, 0.01), GD_SHAPE(2, 1, 6, 6)));
    h = gd_reshape(gd_run_norm(&norm, h, false), GD_SHAPE(2, 16, 4));
    h = gd_run_attention(&attention, gd_run_gru(&gru, h, NULL, NULL), NULL, NULL);
    gd_backward(gd_sum_all(gd_run_linear(&out, h)));
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < gd_params_count(p); i++) { /* which are the same bits on both */
        gd_tensor *value = gd_params_at(p, i);
        ck_assert_int_eq(gd_tensor_print(value, file), GD_OK);
        ck_assert_msg(gd_grad(value) || !strcmp(gd_tensor_name(value), "q1"), "%s",
                      gd_tensor_name(value));
    }
    ck_assert_int_eq(gd_tensor_print(gd_transpose(x, 0, 0), file), GD_OK);
    const long end = ftell(file);
    ck_assert_int_eq(gd_params_print(p, file), GD_OK);
    ck_assert_int_gt(ftell(file), end);
    rewind(file);
    text[fread(text, 1, (size_t)end < size ? (size_t)end : size - 1, file)] = '\0';
    fclose(file);
    ck_assert_no_error(ctx);
    gd_tensor_free(x);
    gd_params_free(p);
    gd_context_free(ctx);
}

TEST(both_devices_print_the_same)
{
    static char text[2][1 << 16];
    draw(GD_CPU, text[0], sizeof text[0]);
    draw(GD_CUDA, text[1], sizeof text[1]);
    ck_assert_int_gt((int)strlen(text[0]), 4000);
    ck_assert_str_eq(text[1], text[0]);
}

CHECK_MAIN_GPU(false, "cuda_layers", NULL, NULL)
