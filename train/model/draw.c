/* draw.c - see draw.h.
 *
 * A vocabulary has some 50,000 tokens, and the device waits for the next one. So the passes over
 * all of them are loops that the compiler vectorizes, and only tokens that may be drawn are
 * ordered, as far as that matters. */
#include "draw.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* The GNU C library has a vector version, which its header does not declare without -ffast-math. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#pragma omp declare simd notinbranch
double exp(double);
#endif

/* Passes over all tokens go block by block: a reduction over a block has no chain of dependent sums
 * through the next one, and most blocks can be left out of a second pass. */
enum { BLOCK = 64 };

static int64_t blocks_of(int64_t vocab)
{
    return (vocab + BLOCK - 1) / BLOCK;
}

static int64_t block_end(int64_t begin, int64_t vocab)
{
    return begin + BLOCK < vocab ? begin + BLOCK : vocab;
}

bool draw_scratch_create(draw_scratch *scratch, int64_t vocab)
{
    *scratch = (draw_scratch){.vocab = vocab};
    scratch->weights = calloc((size_t)vocab, sizeof *scratch->weights);
    scratch->highest = calloc((size_t)blocks_of(vocab), sizeof *scratch->highest);
    scratch->candidates = calloc((size_t)vocab, sizeof *scratch->candidates);
    return scratch->weights && scratch->highest && scratch->candidates;
}

void draw_scratch_free(draw_scratch *scratch)
{
    free(scratch->weights);
    free(scratch->highest);
    free(scratch->candidates);
    *scratch = (draw_scratch){0};
}

/* ---- Passes over all tokens --------------------------------------------------------------- */

int64_t draw_find_nonfinite(const float *logits, int64_t count)
{
    for (int64_t v = 0; v < count; v += BLOCK) {
        const int64_t end = block_end(v, count);
        float zero = 0; /* infinity and NaN times 0 are NaN */
#pragma omp simd reduction(+ : zero)
        for (int64_t i = v; i < end; i++) zero += logits[i] * 0;
        for (int64_t i = v; zero != 0 && i < end; i++)
            if (!isfinite(logits[i])) return i;
    }
    return -1;
}

/* Fills scratch->highest, and returns the first of the largest logits. */
static int32_t find_likeliest(const draw_scratch *scratch, const float *logits)
{
    int64_t first = 0;
    for (int64_t v = 0; v < scratch->vocab; v += BLOCK) {
        const int64_t end = block_end(v, scratch->vocab);
        float highest = logits[v];
#pragma omp simd reduction(max : highest)
        for (int64_t i = v; i < end; i++) highest = logits[i] > highest ? logits[i] : highest;
        scratch->highest[v / BLOCK] = highest;
        if (highest > scratch->highest[first]) first = v / BLOCK;
    }
    int64_t id = first * BLOCK;
    while (logits[id] != scratch->highest[first]) id++;
    return (int32_t)id;
}

/* The weight of a token is e to this. */
static inline double exponent(float logit, float largest, double temperature)
{
    return ((double)logit - (double)largest) * (1 / temperature);
}

/* Fills scratch->weights, and returns their sum. */
static double weigh(const draw_scratch *scratch, const float *logits, float largest,
                    double temperature)
{
    double sum = 0, *weights = scratch->weights;
#pragma omp simd reduction(+ : sum)
    for (int64_t v = 0; v < scratch->vocab; v++) {
        weights[v] = exp(exponent(logits[v], largest, temperature));
        sum += weights[v];
    }
    return sum;
}

/* ---- The likeliest ------------------------------------------------------------------------ */

/* The likeliest comes first; among equals, the smaller id. */
static bool comes_before(const draw_candidate *a, const draw_candidate *b)
{
    return a->weight != b->weight ? a->weight > b->weight : a->id < b->id;
}

static void swap(draw_candidate *a, draw_candidate *b)
{
    const draw_candidate moved = *a;
    *a = *b, *b = moved;
}

/* Moves a candidate of middling weight to the end. */
static void choose_pivot(draw_candidate *c, int64_t count)
{
    draw_candidate *first = c, *middle = c + count / 2, *last = c + count - 1;
    if (comes_before(middle, first)) swap(middle, first);
    if (comes_before(last, first)) swap(last, first);
    if (comes_before(middle, last)) swap(middle, last);
}

/* Takes the candidates in order while they are fewer than `most` and their weights add up to less
 * than `goal`. Moves them to the beginning, where only the last one is sure to be in its place, and
 * returns how many they are. Like quicksort, but continues only with the part that contains
 * the last one. */
static int64_t take(draw_candidate *c, int64_t count, int64_t most, double goal)
{
    int64_t taken = 0, end = count; /* the last one is before `end` */
    double passed = 0;
    while (taken < end && taken < most && passed < goal) {
        double sum = 0;
        int64_t pivot = taken;
        choose_pivot(c + taken, end - taken);
        for (int64_t i = taken; i < end - 1; i++) {
            if (!comes_before(&c[i], &c[end - 1])) continue;
            sum += c[i].weight;
            swap(&c[i], &c[pivot++]);
        }
        swap(&c[pivot], &c[end - 1]);
        if (pivot >= most || passed + sum >= goal) {
            end = pivot;
        } else {
            passed += sum + c[pivot].weight;
            taken = pivot + 1;
        }
    }
    return taken;
}

static double sum_of(const draw_candidate *c, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += c[i].weight;
    return sum;
}

/* A logit below which no token is among the likeliest k: that of the block that is k-th by its
 * highest. */
static float least_of_likeliest(const draw_scratch *scratch, int64_t k)
{
    draw_candidate *c = scratch->candidates;
    const int64_t blocks = blocks_of(scratch->vocab);
    if (k > blocks) return -INFINITY;
    for (int64_t i = 0; i < blocks; i++)
        c[i] = (draw_candidate){(double)scratch->highest[i], (int32_t)i};
    return (float)c[take(c, blocks, k, INFINITY) - 1].weight;
}

/* The first candidates become the tokens to draw from. Returns how many they are. */
static int64_t choose_candidates(const draw_scratch *scratch, const draw_options *o,
                                 const float *logits, float largest)
{
    draw_candidate *c = scratch->candidates;
    const int64_t vocab = scratch->vocab;
    const int64_t most = o->top_k > 0 && o->top_k < vocab ? o->top_k : vocab;
    double goal = INFINITY;
    float least;
    if (o->top_k > 0) {
        least = least_of_likeliest(scratch, most);
    } else { /* tokens of less than (1 - top_p) / vocab add up to less than what is left out */
        const double sum = weigh(scratch, logits, largest, o->temperature);
        const double below = o->temperature * log((1 - o->top_p) * sum / (double)vocab);
        least = nextafterf((float)(largest + below), -INFINITY);
        goal = o->top_p * sum;
    }
    int64_t count = 0;
    for (int64_t v = 0; v < vocab; v += BLOCK) {
        const int64_t end = scratch->highest[v / BLOCK] >= least ? block_end(v, vocab) : v;
        for (int64_t i = v; i < end; i++) {
            if (!(logits[i] >= least)) continue;
            const double weight = o->top_k > 0 ? exp(exponent(logits[i], largest, o->temperature))
                                               : scratch->weights[i];
            c[count++] = (draw_candidate){weight, (int32_t)i};
        }
    }
    count = take(c, count, most, goal);
    if (o->top_k <= 0 || !(o->top_p > 0 && o->top_p < 1)) return count;
    return take(c, count, count, o->top_p * sum_of(c, count)); /* top_p of the likeliest top_k */
}

/* The one at which the sum of the weights in order passes u of the whole. */
static int32_t draw_candidate_of(draw_candidate *c, int64_t count, double u)
{
    const double goal = nextafter(u * sum_of(c, count), INFINITY);
    return c[take(c, count, count, goal) - 1].id;
}

/* ---- All ---------------------------------------------------------------------------------- */

/* The id at which the sum of the weights passes u of the whole. Whole blocks are summed first. */
static int32_t draw_from_all(const draw_scratch *scratch, const float *logits, int32_t likeliest,
                             double temperature, double u)
{
    const double *weights = scratch->weights;
    const double goal = u * weigh(scratch, logits, logits[likeliest], temperature);
    double before = 0;
    for (int64_t v = 0; v < scratch->vocab; v += BLOCK) {
        const int64_t end = block_end(v, scratch->vocab);
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = v; i < end; i++) sum += weights[i];
        if (goal < before + sum) {
            double passed = before;
            for (int64_t i = v; i < end; i++)
                if (goal < (passed += weights[i])) return (int32_t)i;
        }
        before += sum;
    }
    return likeliest;
}

int32_t draw_token(const draw_scratch *scratch, const draw_options *o, const float *logits,
                   double u)
{
    const int32_t likeliest = find_likeliest(scratch, logits);
    if (o->temperature < DBL_MIN) return likeliest; /* its inverse may be infinite */
    if (o->top_k > 0 || (o->top_p > 0 && o->top_p < 1)) {
        const int64_t count = choose_candidates(scratch, o, logits, logits[likeliest]);
        return draw_candidate_of(scratch->candidates, count, u);
    }
    return draw_from_all(scratch, logits, likeliest, o->temperature, u);
}
