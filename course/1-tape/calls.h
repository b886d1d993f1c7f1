/* calls.h - how the functions are called: sizes are in n, arrays in a, in the order of test.c. */

/* A program in n: how many leaves, how many steps, the step that is the loss; then of each step its
 * op, and the numbers that it reads: leaves first, then steps, from 0 on. */
enum { LEAVES, STEPS, LOSS, FIRST, ADD = 0, MUL, TANH, NUMBERS = 32 };

#ifdef COURSE_FILE

/* Runs it twice: what is left of the first time must not be seen in the second. */
static void run_program(const int64_t *n, const double *x, double *loss, double *slopes)
{
    int64_t at[NUMBERS], last = 0;
    for (int time = 0; time < 2; time++) {
        tape_clear();
        for (int64_t i = 0; i < n[LEAVES]; i++) at[i] = tape_leaf((real)x[i]);
        for (int64_t k = 0; k < n[STEPS]; k++) {
            const int64_t *step = n + FIRST + 3 * k, a = at[step[1]], b = at[step[2]];
            at[n[LEAVES] + k] = step[0] == ADD   ? tape_add(a, b)
                                : step[0] == MUL ? tape_mul(a, b)
                                                 : tape_tanh(a);
        }
        last = at[n[LEAVES] + n[LOSS]];
        tape_backward(last);
    }
    *loss = tape_value(last);
    for (int64_t i = 0; i < n[LEAVES]; i++) slopes[i] = tape_slope(at[i]);
}

#define CALLS(CALL) CALL(run_program, n, a[0], a[1], a[2])

#endif
