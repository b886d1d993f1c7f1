/* digits.h - pictures of digits: MNIST's files, or strokes that are drawn here, each in its own way. */
#ifndef DIGITS_H
#define DIGITS_H

#include "gallery.h"

enum { SIDE = 28, PIXELS = SIDE * SIDE };

typedef struct digits {
    int count;
    float *images; /* [count, 1, SIDE, SIDE], from 0 to 1 */
    int32_t *labels;
} digits;

/* Strokes through points (x, y), x from 0 to 6 and y from 0 to 8; a space lifts the pen. */
static const char *const digit_strokes[10] = {
    "204062664828060220",   "123038",      "02204062640868",
    "0060245466482806",     "400565 4248", "6000034365664808",
    "50210406284866442406", "006028",      "20406244240220 240628486644",
    "624424022040626448"};

/* The distance from (x, y) to the nearest stroke. */
static inline double distance_to(const char *path, double x, double y)
{
    double nearest = 100;
    for (; path[2]; path += path[2] == ' ' ? 3 : 2) {
        if (path[2] == ' ') continue;
        const double ax = path[0] - '0', ay = path[1] - '0';
        const double dx = path[2] - '0' - ax, dy = path[3] - '0' - ay;
        const double t = ((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy);
        const double near = fmin(fmax(t, 0), 1);
        nearest = fmin(nearest, hypot(x - ax - near * dx, y - ay - near * dy));
    }
    return nearest;
}

/* Turned by up to 17 degrees, sheared, scaled, shifted by up to 3 pixels, with any pen, and noise. */
static inline void draw_digit(int digit, float *image, uint64_t *seed)
{
    const double turn = 0.6 * gallery_uniform(seed) - 0.3,
                 shear = 0.6 * gallery_uniform(seed) - 0.3;
    const double scale = 1.9 + 0.7 * gallery_uniform(seed), pen = 0.5 + 0.5 * gallery_uniform(seed);
    const double left = 11 + 6 * gallery_uniform(seed), top = 11 + 6 * gallery_uniform(seed);
    for (int i = 0; i < PIXELS; i++) {
        const double x = (i % SIDE - left) / scale, y = (i / SIDE - top) / scale;
        const double u = cos(turn) * x + sin(turn) * y, v = cos(turn) * y - sin(turn) * x;
        const double ink = 1.5 - distance_to(digit_strokes[digit], 3 + u + shear * v, 4 + v) / pen;
        image[i] = (float)fmin(fmax(fmin(fmax(ink, 0), 1) + 0.15 * gallery_normal(seed), 0), 1);
    }
}

static inline digits allocate_digits(int count)
{
    return (digits){count, malloc((size_t)count * PIXELS * sizeof(float)),
                    malloc((size_t)count * sizeof(int32_t))};
}

static inline digits draw_digits(int count, uint64_t seed)
{
    digits d = allocate_digits(count);
    for (int i = 0; d.images && d.labels && i < count; i++)
        draw_digit(d.labels[i] = i % 10, d.images + (size_t)i * PIXELS, &seed);
    return d;
}

/* An IDX file has 0 0 8 DIMENSIONS, each dimension in four bytes, and then bytes. */
static inline digits read_digits(const char *images, const char *labels)
{
    unsigned char head[2][16], byte;
    FILE *file[] = {fopen(images, "rb"), fopen(labels, "rb")};
    bool good = file[0] && file[1] && fread(head[0], 1, 16, file[0]) == 16 &&
                fread(head[1], 1, 8, file[1]) == 8 && head[0][3] == 3 && head[1][3] == 1 &&
                !memcmp(head[0] + 4, head[1] + 4, 4) && head[0][4] == 0 && head[0][11] == SIDE &&
                head[0][15] == SIDE;
    digits d = allocate_digits(good ? head[0][5] << 16 | head[0][6] << 8 | head[0][7] : 0);
    good = good && d.images && d.labels;
    for (int i = 0; good && i < d.count * PIXELS; i++) {
        good = fread(&byte, 1, 1, file[0]) == 1;
        d.images[i] = (float)byte / 255;
    }
    for (int i = 0; good && i < d.count; i++) {
        good = fread(&byte, 1, 1, file[1]) == 1 && byte < 10;
        d.labels[i] = byte;
    }
    for (int i = 0; i < 2; i++)
        if (file[i]) fclose(file[i]);
    if (!good) printf("%s and %s are not MNIST's images and labels\n", images, labels), d.count = 0;
    return d;
}

#endif
