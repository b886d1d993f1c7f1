/* gallery.h - what the programs of the gallery share: their arguments and their end, random numbers for
 * their data, a network, how often a model is right, pictures as PNG and SVG files, written without a
 * library, and digits. What fails has a sentence on stderr. */
#ifndef GALLERY_H
#define GALLERY_H

#include <errno.h>
#include <gradus/gradus.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The beginning and the end ------------------------------------------------------------ */

/* Whether there are no arguments, or as many as `usage` has words. */
static inline bool gallery_arguments(int argc, const char *usage)
{
    int words = 0;
    for (const char *at = usage; *at; at += strcspn(at, " "), at += strspn(at, " ")) words++;
    if (argc <= 1 || argc == words + 1) return true;
    fprintf(stderr, "%d arguments, wanted none%s%s\n", argc - 1, words ? " or " : "", usage);
    return false;
}

/* Makes a file that is removed at the end; false, and a sentence, where a file of yours lies. */
static inline bool gallery_new(const char *path)
{
    FILE *file = fopen(path, "wx");
    if (!file) fprintf(stderr, "%s cannot be made, or is here already\n", path);
    return file && !fclose(file);
}

/* Says what failed, frees all, and returns the exit status. */
static inline int gallery_end(gd_optimizer *optimizer, gd_params *params, gd_context *ctx,
                              bool drawn, bool learned)
{
    const bool printed = fflush(stdout) == 0 && !ferror(stdout);
    const bool good = !gd_error(ctx) && drawn && learned && printed;
    if (gd_error(ctx))
        fprintf(stderr, "%s\n", gd_error(ctx));
    else if (!printed)
        fprintf(stderr, "its output cannot be written\n");
    else if (!learned)
        fprintf(stderr, "it has learned less than it should\n");
    gd_optimizer_free(optimizer);
    gd_params_free(params);
    gd_context_free(ctx);
    return good ? 0 : 1;
}

/* ---- Random numbers, from a seed that any number starts (SplitMix64, Steele et al. 2014) ---- */

static inline double gallery_uniform(uint64_t *seed) /* in [0, 1) */
{
    uint64_t z = *seed += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static inline double gallery_normal(uint64_t *seed) /* Box and Muller 1958 */
{
    const double radius = sqrt(-2 * log(1 - gallery_uniform(seed)));
    return radius * cos(6.283185307179586 * gallery_uniform(seed));
}

/* ---- A network of linear layers ----------------------------------------------------------- */

typedef struct gallery_net {
    gd_params *params;
    gd_mlp mlp;
} gallery_net;

/* widths [layers + 1]; weights for the gain of a function between them (init.h), and biases of 0 */
static inline gallery_net gallery_net_create(gd_context *ctx, int layers, const int64_t *widths,
                                             double gain)
{
    gallery_net n = {.params = gd_params_create(ctx, GD_FLOAT32)};
    n.mlp = gd_make_mlp(n.params, 0, layers, widths, "");
    for (int i = 0; i < n.mlp.count; i++) {
        const gd_init kaiming = {GD_INIT_KAIMING_NORMAL, gain, 0};
        gd_params_set_init(n.params, n.mlp.layers[i].weight, kaiming);
        gd_params_set_init(n.params, n.mlp.layers[i].bias, (gd_init){0});
    }
    gd_params_finish(n.params);
    return n;
}

/* ---- Accuracy ----------------------------------------------------------------------------- */

/* How many rows of logits [n, classes] are largest at their target. */
static inline double gallery_right(gd_tensor *logits, gd_tensor *targets)
{
    gd_tensor *right = gd_eq(gd_argmax(logits, -1, false), targets);
    return gd_item(gd_sum_all(gd_cast(right, GD_FLOAT32)));
}

/* ---- Pictures ----------------------------------------------------------------------------- */

/* Opens a file for writing. One that is there already is replaced only if it has these bytes at `at`, as
 * what was drawn here has; else NULL, and a sentence. */
static inline FILE *gallery_open(const char *path, size_t at, const char *mark, size_t size)
{
    char found[64];
    FILE *file = fopen(path, "rb");
    const bool drawn = file && !fseek(file, (long)at, SEEK_SET) &&
                       fread(found, 1, size, file) == size && !memcmp(found, mark, size);
    if (file) fclose(file);
    if (file && !drawn) {
        fprintf(stderr, "%s is here already, and was not drawn by the gallery: it stays as it is\n",
                path);
        return NULL;
    }
    file = fopen(path, "wb");
    if (!file) fprintf(stderr, "%s cannot be written: %s\n", path, strerror(errno));
    return file;
}

/* Closes a picture's file. What is not whole is removed. */
static inline bool gallery_close(const char *path, FILE *file, bool good)
{
    const int why = errno;
    if (!fclose(file) && good) return true;
    fprintf(stderr, "%s cannot be written: %s\n", path, strerror(good ? errno : why));
    remove(path);
    return false;
}

static inline uint32_t gallery_crc(uint32_t crc, const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return crc;
}

static inline unsigned char *gallery_big_endian(unsigned char *to, uint32_t number)
{
    for (int i = 0; i < 4; i++) to[i] = (unsigned char)(number >> (24 - 8 * i));
    return to + 4;
}

/* A chunk of a PNG file; data [size] begins 8 bytes after `chunk`, with 4 bytes free behind it. */
static inline bool gallery_chunk(FILE *file, const char *type, unsigned char *chunk, size_t size)
{
    memcpy(gallery_big_endian(chunk, (uint32_t)size), type, 4);
    gallery_big_endian(chunk + 8 + size, ~gallery_crc(0xffffffffu, chunk + 4, size + 4));
    return fwrite(chunk, 1, size + 12, file) == size + 12;
}

/* Writes grey pixels [height, width] (width below 65535) as a PNG. Its zlib stream is not compressed:
 * each row is one stored block (RFC 1951) of a filter byte, 0, and the pixels. False on error. */
static inline bool gallery_png(const char *path, const unsigned char *pixels, int width, int height)
{
    const size_t row = (size_t)width + 1, size = 2 + (size_t)height * (row + 5) + 4;
    unsigned char head[25] = {0}, *data = malloc(size + 12), *at;
    static const char stored[] = "IDAT\x78\x01"; /* a stream that is not compressed */
    FILE *file = data ? gallery_open(path, 37, stored, sizeof stored - 1) : NULL;
    if (!file) {
        free(data);
        return false;
    }
    at = gallery_big_endian(gallery_big_endian(head + 8, (uint32_t)width), (uint32_t)height);
    at[0] = 8;             /* bits of a pixel */
    uint32_t a = 1, b = 0; /* the sums of Adler-32 */
    at = data + 8;
    *at++ = 0x78, *at++ = 0x01;
    for (int y = 0; y < height; y++) {
        const unsigned low = row & 255, high = (unsigned)(row >> 8);
        const unsigned char start[] = {y + 1 == height,      (unsigned char)low,
                                       (unsigned char)high,  (unsigned char)~low,
                                       (unsigned char)~high, 0};
        memcpy(at, start, 6);
        memcpy(at + 6, pixels + (size_t)y * (size_t)width, (size_t)width);
        for (size_t i = 0; i < row; i++) {
            a = (a + at[5 + i]) % 65521;
            b = (b + a) % 65521;
        }
        at += 5 + row;
    }
    gallery_big_endian(at, b << 16 | a);
    unsigned char end[12];
    bool good =
        fwrite("\x89PNG\r\n\x1a\n", 1, 8, file) == 8 && gallery_chunk(file, "IHDR", head, 13);
    good = good && gallery_chunk(file, "IDAT", data, size) && gallery_chunk(file, "IEND", end, 0);
    free(data);
    return gallery_close(path, file, good);
}

/* images [count, height, width] side by side, `columns` in a row, each with its smallest value black
 * and its largest white, a pixel as zoom x zoom, as a PNG. */
static inline bool gallery_grid(const char *path, const float *images, int count, int height,
                                int width, int columns, int zoom)
{
    const int down = (count + columns - 1) / columns;
    const int W = columns * (width * zoom + 2) + 2, H = down * (height * zoom + 2) + 2;
    unsigned char *pixels = malloc((size_t)W * (size_t)H);
    if (!pixels) return gallery_close(path, NULL, false);
    memset(pixels, 128, (size_t)W * (size_t)H);
    for (int i = 0; i < count; i++) {
        const float *image = images + (size_t)i * (size_t)(height * width);
        float low = image[0], high = image[0];
        for (int k = 1; k < height * width; k++) {
            low = fminf(low, image[k]);
            high = fmaxf(high, image[k]);
        }
        const int top = i / columns * (height * zoom + 2) + 2;
        const int left = i % columns * (width * zoom + 2) + 2;
        for (int y = 0; y < height * zoom; y++) {
            for (int x = 0; x < width * zoom; x++) {
                const float value = image[y / zoom * width + x / zoom] - low;
                pixels[(top + y) * W + left + x] =
                    (unsigned char)(high > low ? 255 * value / (high - low) : 0);
            }
        }
    }
    const bool good = gallery_png(path, pixels, W, H);
    free(pixels);
    return good;
}

/* Points (x, y) [n, 2] in the colour of their labels, as an SVG of the square from -extent to extent.
 * ground [size, size], or NULL: a class for each cell of the background, its first row at the top. */
static inline bool gallery_scatter(const char *path, const float *points, const int32_t *labels,
                                   int n, double extent, const int32_t *ground, int size)
{
    static const char *const colours[] = {"#d62728", "#1f77b4", "#2ca02c", "#ff7f0e", "#9467bd",
                                          "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf"};
    static const char begin[] = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='";
    FILE *file = gallery_open(path, 0, begin, sizeof begin - 1);
    if (!file) return false;
    fprintf(file, "%s%g %g %g %g' width='480'>\n", begin, -extent, -extent, 2 * extent, 2 * extent);
    const double cell = ground ? 2 * extent / size : 0;
    for (int i = 0; ground && i < size * size; i++) {
        fprintf(file,
                "<rect x='%.4g' y='%.4g' width='%.4g' height='%.4g' fill='%s' opacity='.3'/>\n",
                i % size * cell - extent, i / size * cell - extent, cell, cell,
                colours[ground[i] % 10]);
    }
    for (int i = 0; i < n; i++) {
        fprintf(file, "<circle cx='%.4g' cy='%.4g' r='%.4g' fill='%s'/>\n", (double)points[2 * i],
                -(double)points[2 * i + 1], extent / 100, colours[labels[i] % 10]);
    }
    return gallery_close(path, file, fprintf(file, "</svg>\n") > 0 && !ferror(file));
}

/* ---- Digits: MNIST's files, or strokes that are drawn here, each in its own way ---------------- */

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

/* None (count 0), and a sentence, if there is no memory. */
static inline digits allocate_digits(int count)
{
    digits d = {count, malloc((size_t)count * PIXELS * sizeof(float)),
                malloc((size_t)count * sizeof(int32_t))};
    if (d.images && d.labels) return d;
    fprintf(stderr, "out of memory: %d digits\n", count);
    d.count = 0;
    return d;
}

static inline void free_digits(digits d)
{
    free(d.images);
    free(d.labels);
}

static inline digits draw_digits(int count, uint64_t seed)
{
    digits d = allocate_digits(count);
    for (int i = 0; i < d.count; i++)
        draw_digit(d.labels[i] = i % 10, d.images + (size_t)i * PIXELS, &seed);
    return d;
}

/* What is behind the head of an IDX file: 0 0 8 DIMENSIONS, each dimension in four bytes, and then bytes.
 * Its first dimension becomes *count; the others, if there are any, are SIDE. NULL, and a sentence, if
 * that is not what the file has. */
static inline unsigned char *read_idx(const char *path, unsigned char dimensions, int *count)
{
    const size_t head = 4 + 4 * (size_t)dimensions, each = dimensions == 1 ? 1 : PIXELS;
    unsigned char h[16] = {0}, *bytes = NULL;
    FILE *file = fopen(path, "rb");
    const bool whole = file && fread(h, 1, head, file) == head;
    const uint32_t n = (uint32_t)h[4] << 24 | (uint32_t)h[5] << 16 | (uint32_t)h[6] << 8 | h[7];
    const long size = whole && !fseek(file, 0, SEEK_END) ? ftell(file) : 0;
    if (!file)
        fprintf(stderr, "%s cannot be opened\n", path);
    else if (!whole || memcmp(h, (const unsigned char[]){0, 0, 8, dimensions}, 4) != 0)
        fprintf(stderr, "%s does not begin as an unpacked IDX file of bytes does: 0 0 8 %d\n", path,
                dimensions);
    else if (dimensions == 3 &&
             memcmp(h + 8, (const unsigned char[]){0, 0, 0, SIDE, 0, 0, 0, SIDE}, 8) != 0)
        fprintf(stderr, "%s has no pictures of %d x %d\n", path, SIDE, SIDE);
    else if (n == 0 || n > INT32_MAX / PIXELS || (size_t)size != head + n * each)
        fprintf(stderr, "%s says that it has %lu of %lu bytes, but %ld bytes follow\n", path,
                (unsigned long)n, (unsigned long)each, size - (long)head);
    else if (!(bytes = malloc(n * each)) || fseek(file, (long)head, SEEK_SET) ||
             fread(bytes, 1, n * each, file) != n * each)
        fprintf(stderr, "%s cannot be read\n", path), free(bytes), bytes = NULL;
    if (file) fclose(file);
    *count = (int)n;
    return bytes;
}

/* MNIST's files, with `least` digits or more; none (count 0), and a sentence, if they are not right. */
static inline digits read_digits(const char *images, const char *labels, int least)
{
    int count = 0, other = 0;
    digits d = {0};
    unsigned char *pixels = read_idx(images, 3, &count);
    unsigned char *classes = pixels ? read_idx(labels, 1, &other) : NULL;
    if (classes && count != other)
        fprintf(stderr, "%s has %d pictures, but %s %d labels\n", images, count, labels, other);
    else if (classes)
        d = allocate_digits(count);
    for (int i = 0; i < d.count; i++) {
        d.labels[i] = classes[i];
        if (classes[i] < 10) continue;
        fprintf(stderr, "label %d of %s is %d, more than 9\n", i, labels, classes[i]);
        d.count = 0;
    }
    if (d.count && d.count < least) {
        fprintf(stderr, "%s has %d pictures, wanted a batch of %d at least\n", images, count,
                least);
        d.count = 0;
    }
    for (size_t i = 0; i < (size_t)d.count * PIXELS; i++) d.images[i] = (float)pixels[i] / 255;
    free(pixels), free(classes);
    return d;
}

#endif
