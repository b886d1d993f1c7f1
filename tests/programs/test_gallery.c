/* test_gallery.c - what the examples of the gallery share (docs/examples/gallery.h): pictures can
 * be read by who knows the formats alone, and MNIST's files are read, or refused with a
 * sentence. */
#define _POSIX_C_SOURCE 200809L /* popen */
#include "docs/examples/gallery.h"
#include "check_main.h"
#include "program.h"

#include <ctype.h>

/* A whole file, ended by a 0; NULL: there is none. */
/* ---- PNG ------------------------------------------------------------------------------------ */

static uint32_t number_at(const unsigned char *p)
{
    return (uint32_t)(p[0] * 16777216.0 + p[1] * 65536.0 + p[2] * 256.0 + p[3]);
}

/* CRC-32 by its definition: the remainder of the message, its first 32 bits inverted and 32 zeros
 * behind it, by the polynomial; bits are taken from the lowest of each byte, and so are the
 * remainder's. */
static uint32_t remainder_of(const unsigned char *message, size_t size)
{
    uint64_t rest = 0; /* bit 31 has the highest power */
    for (size_t i = 0; i < 8 * size + 32; i++) {
        const uint64_t bit = i < 8 * size ? (uint64_t)(message[i / 8] >> i % 8 & 1) : 0;
        rest = rest << 1 | (bit ^ (i < 32));
        if (rest >> 32) rest ^= 0x104c11db7;
    }
    uint32_t crc = 0;
    for (int i = 0; i < 32; i++) crc |= (uint32_t)(~rest >> (31 - i) & 1) << i;
    return crc;
}

typedef struct picture {
    uint32_t width, height;
    unsigned char *pixels;
} picture;

/* Grey, 8 bits, in one IDAT of stored blocks (RFC 1950, RFC 1951), whose rows have no filter. */
static picture read_png(const unsigned char *png, size_t size)
{
    static const char *const types[] = {"IHDR", "IDAT", "IEND"};
    const unsigned char *chunk[3], *at = png + 8;
    uint32_t length[3];
    ck_assert_mem_eq(png, "\x89PNG\r\n\x1a\n", 8);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_ge(png + size - at, 12);
        length[i] = number_at(at);
        ck_assert_int_ge(png + size - at - 12, length[i]);
        ck_assert_mem_eq(at + 4, types[i], 4);
        ck_assert_uint_eq(number_at(at + 8 + length[i]), remainder_of(at + 4, length[i] + 4));
        chunk[i] = at + 8;
        at += 12 + length[i];
    }
    ck_assert_ptr_eq(at, png + size);
    ck_assert(length[0] == 13 && length[2] == 0);
    picture p = {number_at(chunk[0]), number_at(chunk[0] + 4), NULL};
    ck_assert_mem_eq(chunk[0] + 8, "\x08\0\0\0\0", 5);
    const size_t whole = (size_t)p.height * (p.width + 1);
    unsigned char *rows = malloc(whole);
    size_t got = 0;
    uint64_t a = 1, b = 0;
    bool last = false;
    at = chunk[1];
    ck_assert(at[0] == 0x78 && (at[0] * 256 + at[1]) % 31 == 0 && !(at[1] & 0x20));
    for (at += 2; !last;) {
        const size_t n = at[1] + 256u * at[2];
        ck_assert_uint_eq(n ^ 0xffff, at[3] + 256u * at[4]);
        ck_assert(at[0] <= 1 && got + n <= whole && at + 5 + n + 4 <= chunk[1] + length[1]);
        last = at[0];
        memcpy(rows + got, at + 5, n);
        got += n, at += 5 + n;
    }
    for (size_t i = 0; i < got; i++) b += a += rows[i];
    ck_assert_uint_eq(number_at(at), b % 65521 << 16 | a % 65521);
    ck_assert(at + 4 == chunk[1] + length[1] && got == whole);
    p.pixels = malloc((size_t)p.height * p.width);
    for (size_t y = 0; y < p.height; y++) {
        ck_assert_int_eq(rows[y * (p.width + 1)], 0);
        memcpy(p.pixels + y * p.width, rows + y * (p.width + 1) + 1, p.width);
    }
    free(rows);
    return p;
}

/* ---- SVG ------------------------------------------------------------------------------------ */

/* Elements in an XML document without entities, comments and declarations, of which one holds all
 * others; each tag that begins must end in its place, attributes have values in quotes, and the
 * numbers of geometry are finite. Returns how many elements there are. */
static int count_elements(const char *xml)
{
    char open[8][16];
    int depth = 0, elements = 0;
    for (; *xml; xml++) {
        if (isspace((unsigned char)*xml)) continue;
        ck_assert_msg(*xml++ == '<' && (elements == 0 || depth > 0), "text: %.40s", xml);
        const bool ends = *xml == '/';
        char name[16] = "";
        int read = 0;
        ck_assert_msg(sscanf(xml += ends, "%15[a-z]%n", name, &read) == 1, "no name: %.40s", xml);
        xml += read;
        if (ends) {
            ck_assert_msg(depth > 0 && !strcmp(open[--depth], name), "</%s>", name);
            ck_assert_int_eq(*xml, '>');
            continue;
        }
        elements++;
        while (*xml == ' ') {
            char attribute[16], value[80];
            read = 0;
            ck_assert_msg(sscanf(xml, " %15[a-zA-Z]='%79[^'<&]'%n", attribute, value, &read) == 2 &&
                              read,
                          "no attribute: %.40s", xml);
            if (strlen(attribute) <= 2 || !strcmp(attribute, "width")) {
                char *end;
                ck_assert(isfinite(strtod(value, &end)) && !*end);
            }
            xml += read;
        }
        const bool empty = *xml == '/';
        ck_assert_int_lt(depth, 8);
        if (!empty) strcpy(open[depth++], name);
        ck_assert_msg(*(xml += empty) == '>', "no >: %.40s", xml);
    }
    ck_assert_int_eq(depth, 0);
    return elements;
}

/* ---- Pictures ------------------------------------------------------------------------------- */

LOOP_TEST(a_png_has_its_pixels, 5)
{
    static const int sizes[][2] = {{1, 1}, {1, 9}, {300, 2}, {257, 31}, {65534, 1}};
    const int width = sizes[_i][0], height = sizes[_i][1];
    unsigned char *pixels = malloc((size_t)width * (size_t)height);
    uint64_t seed = 1;
    size_t size = 0;
    for (int i = 0; i < width * height; i++)
        pixels[i] = (unsigned char)(256 * gallery_uniform(&seed));
    ck_assert(gallery_png("gallery-test.png", pixels, width, height));
    unsigned char *png = read_whole("gallery-test.png", &size);
    picture p = read_png(png, size);
    ck_assert(p.width == (uint32_t)width && p.height == (uint32_t)height);
    ck_assert_mem_eq(p.pixels, pixels, (size_t)width * (size_t)height);
    ck_assert(!gallery_png("no/such/folder.png", pixels, width, height));
    free(png), free(p.pixels), free(pixels);
    remove("gallery-test.png");
}

/* What the programs drew, where the tests of the examples ran before: a picture of one grey says
 * nothing, nor does an SVG of a few points. */
TEST(the_pictures_of_the_examples)
{
    static const char *const names[] = {"digits.png", "vae.png",   "names.png",     "burgers.png",
                                        "dates.png",  "lora.png",  "spirals.svg",   "contrast.svg",
                                        "wgan.svg",   "sines.svg", "diffusion.svg", "cartpole.svg"};
    static const uint32_t sizes[6][2] = {{498, 126}, {698, 466}, {296, 294},
                                         {518, 260}, {608, 206}, {698, 118}};
    for (int i = 0; i < 12; i++) {
        size_t size = 0;
        unsigned char *bytes = read_whole(names[i], &size);
        if (!bytes) {
            printf("%s is not there: not looked at\n", names[i]);
        } else if (i < 6) {
            picture p = read_png(bytes, size);
            int count[256] = {0}, values = 0;
            for (uint32_t k = 0; k < p.width * p.height; k++) count[p.pixels[k]]++;
            for (int v = 0; v < 256; v++) values += count[v] > 0;
            printf("%s: %u x %u, %d values\n", names[i], p.width, p.height, values);
            ck_assert(p.width == sizes[i][0] && p.height == sizes[i][1]);
            ck_assert_int_gt(values, 20);
            free(p.pixels);
        } else {
            const int elements = count_elements((const char *)bytes);
            printf("%s: %d elements\n", names[i], elements);
            ck_assert_int_gt(elements, i == 11 ? 80 : 240);
        }
        free(bytes);
    }
}

TEST(a_scatter_is_xml)
{
    const float points[] = {0, 0, 1, -1, -2, 2};
    const int32_t labels[] = {0, 9, 11}, ground[] = {0, 1, 2, 3};
    size_t size = 0;
    for (int with = 0; with < 2; with++) {
        ck_assert(
            gallery_scatter("gallery-test.svg", points, labels, 3, 2, with ? ground : NULL, 2));
        char *svg = (char *)read_whole("gallery-test.svg", &size);
        ck_assert_int_eq(count_elements(svg), 1 + 3 + 4 * with);
        ck_assert_int_eq(
            strncmp(svg, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='-2 -2 4 4'", 59), 0);
        ck_assert_ptr_nonnull(strstr(svg, "<circle cx='1' cy='1' r='0.02' fill='#17becf'/>"));
        free(svg);
    }
    remove("gallery-test.svg");
}

/* Files of others are neither written over nor removed; pictures of the gallery are drawn anew. */
TEST(files_of_others_stay)
{
    static const char mine[] = "weights of mine, which are more than forty bytes\n";
    static const char *const runs[][2] = {{"go_on.safetensors", "go_on"},
                                          {"lora.safetensors", "lora"},
                                          {"twin_cnn.safetensors", "twin_cnn"}};
    const unsigned char pixel = 7;
    const float point[] = {0, 0};
    const int32_t label = 0;
    size_t size;
    char command[512];
    shell("mkdir gallery-others");
    for (int i = 0; i < 5; i++) {
        char path[64];
        snprintf(path, sizeof path, "gallery-others/%s", i < 3 ? runs[i][0] : "picture");
        write_bytes(path, mine, strlen(mine));
        if (i == 3) ck_assert(!gallery_png(path, &pixel, 1, 1));
        if (i == 4) ck_assert(!gallery_scatter(path, point, &label, 1, 1, NULL, 0));
        snprintf(command, sizeof command, "cd gallery-others && '%.*s%s'",
                 (int)(strrchr(GRADUS_PROGRAM, '/') + 1 - GRADUS_PROGRAM), GRADUS_PROGRAM,
                 i < 3 ? runs[i][1] : "");
        if (i < 3) ck_assert_int_ne(system(command), 0);
        char *found = (char *)read_whole(path, &size);
        ck_assert_msg(found && !strcmp(found, mine), "%s", path);
        free(found), remove(path);
    }
    for (int i = 0; i < 2; i++) {
        ck_assert(gallery_png("gallery-others/a.png", &pixel, 1, 1));
        ck_assert(gallery_scatter("gallery-others/a.svg", point, &label, 1, 1, NULL, 0));
    }
}

/* ---- MNIST's files -------------------------------------------------------------------------- */

enum { FEW = 3 };

/* IDX files of a few digits, as bytes; a test spoils them. */
typedef struct files {
    unsigned char images[16 + FEW * PIXELS], labels[8 + FEW];
    size_t images_size, labels_size;
} files;

static files good_files(void)
{
    files f = {{0, 0, 8, 3, 0, 0, 0, FEW, 0, 0, 0, SIDE, 0, 0, 0, SIDE},
               {0, 0, 8, 1, 0, 0, 0, FEW, 7, 0, 9},
               sizeof f.images,
               sizeof f.labels};
    for (int i = 0; i < FEW * PIXELS; i++) f.images[16 + i] = (unsigned char)(i * 7);
    return f;
}

static void write_files(const files *f)
{
    write_bytes("gallery-images", f->images, f->images_size);
    write_bytes("gallery-labels", f->labels, f->labels_size);
}

TEST(digits_are_read)
{
    const files f = good_files();
    write_files(&f);
    digits d = read_digits("gallery-images", "gallery-labels", FEW);
    ck_assert_int_eq(d.count, FEW);
    for (int i = 0; i < FEW * PIXELS; i++)
        ck_assert_float_eq(d.images[i], (float)(i * 7 % 256) / 255);
    ck_assert(d.labels[0] == 7 && d.labels[1] == 0 && d.labels[2] == 9);
    free_digits(d);
}

/* Cut to a size (SIZE_MAX: as it is), and a byte of it changed. */
static const struct {
    size_t images_size, labels_size, at;
    bool in_labels;
    unsigned char byte;
    const char *message;
} bad[] = {
    {0, SIZE_MAX, 0, false, 0,
     "images does not begin as an unpacked IDX file of bytes does: 0 0 8 3\n"},
    {SIZE_MAX, 0, 0, true, 0,
     "labels does not begin as an unpacked IDX file of bytes does: 0 0 8 1\n"},
    {15, SIZE_MAX, 0, false, 0, "images does not begin as"},
    {SIZE_MAX, SIZE_MAX, 0, false, 0x1f, "images does not begin as"}, /* of gzip */
    {SIZE_MAX, SIZE_MAX, 2, false, 13, "images does not begin as"},   /* of floats */
    {SIZE_MAX, SIZE_MAX, 3, false, 1, "images does not begin as"},
    {SIZE_MAX, SIZE_MAX, 3, true, 3, "labels does not begin as"},
    {SIZE_MAX, SIZE_MAX, 11, false, 27, "images has no pictures of 28 x 28\n"},
    {SIZE_MAX, SIZE_MAX, 12, false, 1, "images has no pictures of 28 x 28\n"},
    {16 + FEW * PIXELS - 1, SIZE_MAX, 0, false, 0,
     "images says that it has 3 of 784 bytes, but 2351 bytes follow\n"},
    {16, SIZE_MAX, 0, false, 0, "images says that it has 3 of 784 bytes, but 0 bytes"},
    {SIZE_MAX, 8 + FEW - 1, 0, true, 0, "labels says that it has 3 of 1 bytes, but 2 bytes"},
    {SIZE_MAX, SIZE_MAX, 7, false, 2, "images says that it has 2 of 784 bytes, but 2352 "},
    {SIZE_MAX, 8 + FEW - 1, 7, true, 2, "images has 3 pictures, but gallery-labels 2 labels\n"},
    {16, SIZE_MAX, 7, false, 0, "images says that it has 0 of 784 bytes, but 0 bytes"},
    {SIZE_MAX, SIZE_MAX, 4, false, 255, "images says that it has 4278190083 of 784 bytes"},
    {SIZE_MAX, SIZE_MAX, 5, false, 41, "images says that it has 2686979 of 784 bytes"},
    {SIZE_MAX, SIZE_MAX, 4, true, 127, "labels says that it has 2130706435 of 1 bytes"},
    {SIZE_MAX, SIZE_MAX, 9, true, 10, "label 1 of gallery-labels is 10, more than 9\n"},
};

LOOP_TEST(bad_files_are_refused, sizeof bad / sizeof *bad)
{
    files f = good_files();
    (bad[_i].in_labels ? f.labels : f.images)[bad[_i].at] = bad[_i].byte;
    if (bad[_i].images_size < f.images_size) f.images_size = bad[_i].images_size;
    if (bad[_i].labels_size < f.labels_size) f.labels_size = bad[_i].labels_size;
    write_files(&f);
    digits d = read_digits("gallery-images", "gallery-labels", FEW);
    ck_assert_int_eq(d.count, 0);
    free_digits(d);
    if (program_missing("the example digits")) return;
    program_must(1, "gallery-images gallery-labels gallery-images gallery-labels", output);
    program_said(output, bad[_i].message);
    ck_assert_int_eq(count_lines(output), 2); /* of both pairs, and then nothing */
}

/* With fewer digits than a batch nothing would be trained. */
TEST(few_digits_are_refused)
{
    const files f = good_files();
    write_files(&f);
    digits d = read_digits("gallery-images", "gallery-labels", FEW + 1);
    ck_assert_int_eq(d.count, 0);
    free_digits(d);
    if (program_missing("the example digits")) return;
    program_must(1, "gallery-images gallery-labels gallery-images gallery-labels", output);
    program_said(output, "gallery-images has 3 pictures, wanted a batch of 128 at least\n");
    ck_assert_int_eq(count_lines(output), 2);
}

static const char *const programs[] = {"digits", "spirals", "contrast", "vae",
                                       "names",  "burgers", "wgan",     "sines"};

/* Nothing is trained on other data than what was named. */
LOOP_TEST(other_arguments_are_refused, sizeof programs / sizeof *programs)
{
    if (program_missing("the example digits")) return;
    ck_assert_int_eq(program_run_other(programs[_i], "gallery-images", output), 2);
    ck_assert_str_eq(output, _i ? "1 arguments, wanted none\n"
                                : "1 arguments, wanted none or IMAGES LABELS IMAGES LABELS\n");
}

TEST(a_picture_that_cannot_be_written_is_named)
{
    if (program_missing("the example digits")) return;
    shell("mkdir spirals.svg");
    ck_assert_int_eq(program_run_other("spirals", ">/dev/null", output), 1);
    ck_assert_str_eq(output, "spirals.svg is here already, and was not drawn by the gallery: "
                             "it stays as it is\n");
}

TEST(missing_files_are_named)
{
    if (program_missing("the example digits")) return;
    const files f = good_files();
    write_files(&f);
    program_must(1, "no-images gallery-labels gallery-images no-labels", output);
    ck_assert_str_eq(output, "no-images cannot be opened\nno-labels cannot be opened\n");
}

CHECK_MAIN_WITHIN("gallery", enter_folder, leave_folder)
