/* test_print.c - tensors and groups of parameters as text: the elements are what NumPy 2.4 prints
 * of the same array with np.set_printoptions(threshold=0). */
#define _DEFAULT_SOURCE /* mkdtemp, setenv */
#include <locale.h>
#include <unistd.h>

#include "each_context.h"

static char text[8192];

static void print(gd_tensor *t)
{
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(gd_tensor_print(t, file), GD_OK);
    read_back(file, text, sizeof text);
}

/* Prints `n` values as a tensor of this dtype and shape. */
static void print_values(gd_dtype dtype, int ndim, const int64_t *shape, const double *values,
                         int64_t n)
{
    gd_tensor *t = gd_tensor_create(ctx, dtype, ndim, shape);
    gd_tensor_write_f64(t, values, n);
    ck_assert_no_error(ctx);
    print(t);
    gd_tensor_free(t);
}

TEST(specials)
{
    static const double x[] = {1, 2.5, NAN, -3.125, 0, INFINITY};
    print_values(GD_FLOAT32, GD_SHAPE(2, 3), x, 6);
    ck_assert_str_eq(text, "float32 [2, 3]  min -3.125  mean inf  max inf  NaN 1\n"
                           "[[ 1.     2.5      nan]\n"
                           " [-3.125  0.       inf]]\n");
    print_values(GD_FLOAT32, GD_SHAPE(2), (double[]){NAN, NAN}, 2);
    ck_assert_str_eq(text, "float32 [2]  min nan  mean nan  max nan  NaN 2\n[nan nan]\n");
    print_values(GD_FLOAT64, GD_SHAPE(6), (double[]){1e-5, 1, 1e100, -2.5e-200, NAN, -INFINITY}, 6);
    ck_assert_str_eq(text, "float64 [6]  min -inf  mean -inf  max 1e+100  NaN 1\n"
                           "[ 1.0e-005  1.0e+000  1.0e+100 -2.5e-200       nan      -inf]\n");
    print_values(GD_FLOAT32, GD_SHAPE(2, 2), (double[4]){0}, 4);
    ck_assert_str_eq(text, "float32 [2, 2]  min 0  mean 0  max 0  NaN 0\n[[0. 0.]\n [0. 0.]]\n");
    print_values(GD_FLOAT32, 0, NULL, (double[]){-0.1}, 1);
    ck_assert_str_eq(text, "float32 []  min -0.1  mean -0.1  max -0.1  NaN 0\n-0.1\n");
    print_values(GD_FLOAT64, GD_SHAPE(0, 3), NULL, 0);
    ck_assert_str_eq(text, "float64 [0, 3]  min nan  mean nan  max nan  NaN 0\n[]\n");
}

TEST(long_axes_and_lines)
{
    double x[72];
    for (int i = 0; i < 40; i++) x[i] = (i / 7. - 2) * 1e-3;
    print_values(GD_FLOAT32, GD_SHAPE(4, 10), x, 40);
    ck_assert_str_eq(text, "float32 [4, 10]  min -0.002  mean 0.000785714  max 0.00357143  NaN 0\n"
                           "[[-0.002      -0.00185714 -0.00171429 ... -0.001      -0.00085714\n"
                           "  -0.00071429]\n"
                           " [-0.00057143 -0.00042857 -0.00028571 ...  0.00042857  0.00057143\n"
                           "   0.00071429]\n"
                           " [ 0.00085714  0.001       0.00114286 ...  0.00185714  0.002\n"
                           "   0.00214286]\n"
                           " [ 0.00228571  0.00242857  0.00257143 ...  0.00328571  0.00342857\n"
                           "   0.00357143]]\n");
    for (int i = 0; i < 8; i++) x[i] = (i - 3) / 3.;
    print_values(GD_FLOAT64, GD_SHAPE(8), x, 8);
    ck_assert_str_eq(text, "float64 [8]  min -1  mean 0.166667  max 1.33333  NaN 0\n"
                           "[-1.         -0.66666667 -0.33333333 ...  0.66666667  1.\n"
                           "  1.33333333]\n");
    for (int i = 0; i < 72; i++) x[i] = i - 70.25;
    print_values(GD_FLOAT32, GD_SHAPE(2, 2, 2, 9), x, 72);
    ck_assert_str_eq(text, "float32 [2, 2, 2, 9]  min -70.25  mean -34.75  max 0.75  NaN 0\n"
                           "[[[[-70.25 -69.25 -68.25 ... -64.25 -63.25 -62.25]\n"
                           "   [-61.25 -60.25 -59.25 ... -55.25 -54.25 -53.25]]\n"
                           "\n"
                           "  [[-52.25 -51.25 -50.25 ... -46.25 -45.25 -44.25]\n"
                           "   [-43.25 -42.25 -41.25 ... -37.25 -36.25 -35.25]]]\n"
                           "\n"
                           "\n"
                           " [[[-34.25 -33.25 -32.25 ... -28.25 -27.25 -26.25]\n"
                           "   [-25.25 -24.25 -23.25 ... -19.25 -18.25 -17.25]]\n"
                           "\n"
                           "  [[-16.25 -15.25 -14.25 ... -10.25  -9.25  -8.25]\n"
                           "   [ -7.25  -6.25  -5.25 ...  -1.25  -0.25   0.75]]]]\n");
    for (int i = 0; i < 7; i++) x[i] = 1000 * i;
    print_values(GD_INT32, GD_SHAPE(7, 1), x, 7);
    ck_assert_str_eq(text, "int32 [7, 1]  min 0  mean 3000  max 6000  NaN 0\n"
                           "[[   0]\n [1000]\n [2000]\n ...\n [4000]\n [5000]\n [6000]]\n");
    for (int i = 0; i < 58; i++) x[i] = 7 * i - 5;
    print_values(GD_INT32, GD_SHAPE(58), x, 58);
    ck_assert_str_eq(text, "int32 [58]  min -5  mean 194.5  max 394  NaN 0\n"
                           "[ -5   2   9 ... 380 387 394]\n");
}

/* As few digits as tell a number from its neighbours, of each dtype; with exponents. */
TEST(digits)
{
    double x[10];
    for (int i = 0; i < 10; i++) x[i] = ldexp(1, 4 * i - 20);
    print_values(GD_FLOAT32, GD_SHAPE(10), x, 10);
    ck_assert_str_eq(text,
                     "float32 [10]  min 9.53674e-07  mean 6990.51  max 65536  NaN 0\n"
                     "[9.5367432e-07 1.5258789e-05 2.4414062e-04 ... 2.5600000e+02 4.0960000e+03\n"
                     " 6.5536000e+04]\n");
    const double pi = 3.141592653589793;
    for (int i = 0; i < 7; i++) x[i] = pi * pow(10, i - 4);
    print_values(GD_FLOAT64, GD_SHAPE(7), x, 7);
    ck_assert_str_eq(text, "float64 [7]  min 0.000314159  mean 49.8665  max 314.159  NaN 0\n"
                           "[3.14159265e-04 3.14159265e-03 3.14159265e-02 ... 3.14159265e+00\n"
                           " 3.14159265e+01 3.14159265e+02]\n");
    for (int i = 0; i < 5; i++) x[i] = pi * pow(10, i - 2);
    print_values(GD_FLOAT32, GD_SHAPE(5), x, 5);
    ck_assert_str_eq(text,
                     "float32 [5]  min 0.0314159  mean 69.8125  max 314.159  NaN 0\n"
                     "[3.1415928e-02 3.1415927e-01 3.1415927e+00 3.1415926e+01 3.1415927e+02]\n");
    print_values(GD_BFLOAT16, GD_SHAPE(4), (double[]){pi, 0.1, 1, 0.5},
                 4); /* 3.140625, 0.1000976 */
    ck_assert_str_eq(text, "bfloat16 [4]  min 0.100098  mean 1.18518  max 3.14062  NaN 0\n"
                           "[3.14 0.1  1.   0.5 ]\n");
    print_values(GD_FLOAT64, GD_SHAPE(2), (double[]){1.33386340123, 0.25021100441}, 2);
    ck_assert_str_eq(text, "float64 [2]  min 0.250211  mean 0.792037  max 1.33386  NaN 0\n"
                           "[1.3338634 0.250211 ]\n");
    print_values(GD_FLOAT32, GD_SHAPE(2), (double[]){(double)1e-4F, (double)1e-4F}, 2);
    ck_assert_str_eq(text, "float32 [2]  min 0.0001  mean 0.0001  max 0.0001  NaN 0\n"
                           "[0.0001 0.0001]\n");
    print_values(GD_FLOAT32, GD_SHAPE(2), (double[]){1e7, INFINITY}, 2);
    ck_assert_str_eq(text, "float32 [2]  min 1e+07  mean inf  max inf  NaN 0\n[1.e+07    inf]\n");
    print_values(GD_FLOAT16, GD_SHAPE(2), (double[]){-32192, -INFINITY}, 2);
    ck_assert_str_eq(text, "float16 [2]  min -inf  mean -inf  max -32192  NaN 0\n"
                           "[-3.22e+04      -inf]\n");
    print_values(GD_INT32, GD_SHAPE(2), (double[]){-2147483648., 1000001}, 2);
    ck_assert_str_eq(text, "int32 [2]  min -2147483648  mean -1.07324e+09  max 1000001  NaN 0\n"
                           "[-2147483648     1000001]\n");
    print_values(GD_FLOAT16, GD_SHAPE(3), (double[]){pi, 0.1, 2048}, 3);
    ck_assert_str_eq(text, "float16 [3]  min 0.0999756  mean 683.747  max 2048  NaN 0\n"
                           "[3.141e+00 9.998e-02 2.048e+03]\n");
}

/* Numbers have points in any locale of the program's, also those of errors and notes, and a NaN has
 * no sign. Needs localedef. */
TEST(points_in_any_locale)
{
    char folder[] = "/tmp/gradus_print_XXXXXX", command[256], plain[2][sizeof text];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >%s/said 2>&1",
             folder, folder);
    const bool made = system(command) == 0;
    setenv("LOCPATH", folder, 1);
    for (int german = 0; german < 2; german++) {
        if (german && !(made && setlocale(LC_NUMERIC, "de_DE.UTF-8"))) break;
        const double inf = INFINITY;
        print_values(GD_FLOAT32, GD_SHAPE(3), (double[]){1.5, inf, -inf}, 3);
        if (german) ck_assert_str_eq(text, plain[0]);
        strcpy(plain[0], text);
        ck_assert_str_eq(text, "float32 [3]  min -inf  mean nan  max inf  NaN 0\n"
                               "[ 1.5  inf -inf]\n");
        gd_tensor *x = gd_arange(ctx, GD_FLOAT32, 0, 2, 1);
        gd_dropout(x, 1.5);
        ck_assert_error(ctx, "dropout: p is 1.5, wanted");
        gd_dropout(x, inf - inf);
        ck_assert_error(ctx, "dropout: p is nan, wanted");
        gd_params *params = gd_params_create(ctx, GD_FLOAT32);
        gd_tensor *w = gd_params_add(params, "w", GD_SHAPE(1), 0);
        gd_params_finish(params);
        gd_tape_record_norms(ctx, true);
        gd_tensor_fill(w, 0.5);
        gd_backward(gd_sum_all(gd_scale(w, 0.5)));
        FILE *file = tmpfile();
        ck_assert_int_eq(gd_params_print(params, file), GD_OK);
        ck_assert_int_eq(gd_tape_print(ctx, file), GD_OK);
        ck_assert_int_eq(gd_tape_print_dot(ctx, file), GD_OK);
        read_back(file, text, sizeof text);
        ck_assert_ptr_nonnull(strstr(text, " 0.5 "));
        ck_assert_ptr_null(strstr(text, "0,"));
        if (german) ck_assert_str_eq(text, plain[1]);
        strcpy(plain[1], text);
        gd_params_free(params);
        gd_step_end(ctx);
        gd_tensor_free(x);
    }
    setlocale(LC_NUMERIC, "C");
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

/* A view, a name, and a tensor on the tape, whose printing leaves the tape as it is. */
TEST(names_and_views)
{
    gd_tensor *t = gd_arange(ctx, GD_FLOAT32, 0, 6, 1);
    gd_tensor_set_requires_grad(t, true);
    gd_tensor_set_name(t, "a\nname");
    gd_tensor *view = gd_transpose(gd_reshape(t, GD_SHAPE(2, 3)), 0, 1);
    const int64_t length = gd_tape_length(ctx);
    print(view);
    ck_assert_str_eq(text, "float32 [3, 2]  min 0  mean 2.5  max 5  NaN 0\n"
                           "[[0. 3.]\n [1. 4.]\n [2. 5.]]\n");
    print(t);
    ck_assert_str_eq(text, "a?name float32 [6]  min 0  mean 2.5  max 5  NaN 0\n"
                           "[0. 1. 2. 3. 4. 5.]\n");
    ck_assert_int_eq(gd_tape_length(ctx), length);
    gd_step_end(ctx);
    gd_tensor_free(t);
}

TEST(groups)
{
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    const gd_linear_layer l = gd_make_linear(params, 0, 2, 3, "hidden");
    gd_make_norm(params, GD_BATCH_NORM, 0, 3, "norm");
    for (int pass = 0; pass < 2; pass++) {
        FILE *file = tmpfile();
        ck_assert_int_eq(gd_params_print(params, file), GD_OK);
        read_back(file, text, sizeof text);
        if (pass) break;
        ck_assert_str_eq(text, "parameter                        shape                   count     "
                               "    norm     gradient\n"
                               "hidden.weight                    [3, 2]                      6     "
                               "       -            -\n"
                               "hidden.bias                      [3]                         3     "
                               "       -            -\n"
                               "norm.weight                      [3]                         3     "
                               "       -            -\n"
                               "norm.bias                        [3]                         3     "
                               "       -            -\n"
                               "norm.running_mean                [3]                         3     "
                               "       -       buffer\n"
                               "norm.running_var                 [3]                         3     "
                               "       -       buffer\n"
                               "4 parameters of 15 numbers, 2 buffers\n");
        gd_params_finish(params);
        gd_tensor_fill(l.weight, 0.5), gd_tensor_fill(l.bias, -2);
        gd_backward(gd_sum_all(l.bias));
        gd_step_end(ctx);
    }
    ck_assert_str_eq(
        text,
        "parameter                        shape                   count         norm     gradient\n"
        "hidden.weight                    [3, 2]                      6      1.22474            -\n"
        "hidden.bias                      [3]                         3       3.4641      1.73205\n"
        "norm.weight                      [3]                         3      1.73205            -\n"
        "norm.bias                        [3]                         3            0            -\n"
        "norm.running_mean                [3]                         3            0       buffer\n"
        "norm.running_var                 [3]                         3      1.73205       buffer\n"
        "4 parameters of 15 numbers, 2 buffers\n");
    gd_params_free(params);
}

TEST(what_cannot_be_printed)
{
    gd_params *params = gd_params_create(ctx, GD_FLOAT32);
    gd_tensor *w = gd_params_add(params, "w", GD_SHAPE(2), 0);
    gd_tensor *x = gd_arange(ctx, GD_FLOAT32, 0, 3, 1);
    ck_assert_int_eq(gd_tensor_print(NULL, stdout), GD_ERROR_ARGUMENT);
    ck_assert_int_eq(gd_params_print(NULL, stdout), GD_ERROR_ARGUMENT);
    gd_tensor_print(w, stdout);
    ck_assert_error(ctx, "tensor_print: tensor \"w\" has no memory yet, call gd_params_finish");
    gd_tensor_print(x, NULL);
    ck_assert_error(ctx, "tensor_print: file is NULL, wanted an open one");
    gd_params_print(params, NULL);
    ck_assert_error(ctx, "params_print: file is NULL, wanted an open one");
    gd_tensor *y = gd_scale(x, 2);
    gd_step_end(ctx);
    gd_tensor_print(y, stdout);
    ck_assert_error(ctx, "tensor_print: tensor [3] belongs to a step that gd_step_end has ended");
    FILE *file = fopen("/dev/null", "r");
    if (file) {
        gd_tensor_print(x, file);
        ck_assert_error(ctx, "tensor_print: writing to the file failed");
        gd_params_print(params, file);
        ck_assert_error(ctx, "params_print: writing to the file failed");
        fclose(file);
    }
    gd_tensor_free(x);
    gd_tensor_print(x, stdout);
    ck_assert_error(ctx, "tensor_print: tensor [3] was freed");
    gd_params_free(params);
}

CHECK_MAIN_WITHIN("print", setup, teardown)
