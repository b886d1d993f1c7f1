/* test_saved_over.c - a file that is saved over: it keeps its permissions, links that lead to it
 * stay, and every name that the file system takes can be saved to. */
#define _XOPEN_SOURCE 700 /* mkdtemp, symlink, lchown */
#include "check_main.h"
#include "gradus/gradus.h"
#include "own_folder.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static gd_context *ctx;
static gd_tensor *t;

/* In the folder, with one tensor. */
static void set_up(void)
{
    enter_folder();
    umask(022);
    ctx = gd_context_create(NULL);
    t = gd_tensor_create(ctx, GD_FLOAT32, GD_SHAPE(1));
}

static void tear_down(void)
{
    gd_context_free(ctx);
    leave_folder();
}

static gd_status save(double value, const char *path)
{
    gd_tensor_fill(t, value);
    return gd_safetensors_write(ctx, path, &(gd_named_tensor){"w", t}, 1, NULL, 0);
}

static double value_in(const char *path)
{
    double value = -1;
    gd_safetensors *file = gd_safetensors_open(ctx, path);
    ck_assert_msg(file != NULL, "%s", gd_error(ctx));
    ck_assert(!gd_tensor_read_f64(gd_safetensors_tensor(file, "w"), &value, 1));
    gd_safetensors_close(file);
    return value;
}

static struct stat status_of(const char *path)
{
    struct stat status;
    ck_assert_msg(lstat(path, &status) == 0, "%s is not there", path);
    return status;
}

/* How many names are in a folder. */
static int names_in(const char *path)
{
    int count = -2; /* . and .. */
    DIR *list = opendir(path);
    ck_assert_ptr_nonnull(list);
    while (readdir(list)) count++;
    closedir(list);
    return count;
}

TEST(permissions_stay)
{
    static const unsigned modes[] = {0600, 0644, 0664, 0400, 0640, 0606, 0777, 0};
    ck_assert(!save(1, "file"));
    ck_assert_uint_eq(status_of("file").st_mode & 07777, 0644);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        chmod("file", modes[i]);
        ck_assert(!save(2, "file"));
        ck_assert_uint_eq(status_of("file").st_mode & 07777, modes[i]);
    }
    ck_assert_int_eq(names_in("."), 1);
}

TEST(owners_stay)
{
    if (geteuid() != 0) return; /* nobody else may give files away */
    ck_assert(!save(1, "file"));
    ck_assert_int_eq(chown("file", 1234, 4321), 0);
    chmod("file", 0640);
    ck_assert(!save(2, "file"));
    const struct stat now = status_of("file");
    ck_assert_uint_eq(now.st_uid, 1234);
    ck_assert_uint_eq(now.st_gid, 4321);
    ck_assert_uint_eq(now.st_mode & 07777, 0640);
}

/* A file of another owner and group in one's own folder: what its group could do,
 * another cannot. */
TEST(nobody_gains)
{
    if (geteuid() != 0) return;
    ck_assert(!save(1, "file"));
    ck_assert_int_eq(chown("file", 1234, 4321), 0);
    ck_assert_int_eq(chmod("file", 06664), 0);
    ck_assert_int_eq(chown(".", 5678, 5678), 0);
    ck_assert_int_eq(setegid(5678), 0);
    ck_assert_int_eq(seteuid(5678), 0);
    const gd_status failed = save(2, "file");
    const struct stat now = status_of("file");
    ck_assert_int_eq(seteuid(0), 0);
    ck_assert_int_eq(setegid(0), 0);
    ck_assert_msg(!failed, "%s", gd_error(ctx));
    ck_assert_uint_eq(now.st_uid, 5678);
    ck_assert_uint_eq(now.st_mode & 07777, 0644);
    ck_assert_double_eq(value_in("file"), 2);
}

TEST(links_lead_to_what_is_saved)
{
    static const struct {
        const char *target, *link, *file;
    } rows[] = {{"disk/real", "link", "disk/real"},    /* */
                {"link", "chain", "disk/real"},        /* a link to a link */
                {"disk", "way", NULL},                 /* a folder's */
                {"../chain", "disk/up", "disk/real"},  /* seen from where it is */
                {"disk/new", "dangling", "disk/new"}}; /* to no file yet */
    char whole[128];
    ck_assert_int_eq(mkdir("disk", 0755), 0);
    ck_assert(!save(1, "disk/real"));
    chmod("disk/real", 0600);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(symlink(rows[i].target, rows[i].link), 0);
        if (!rows[i].file) continue;
        ck_assert_msg(!save(2 + i, rows[i].link), "%s", gd_error(ctx));
        ck_assert(S_ISLNK(status_of(rows[i].link).st_mode));
        ck_assert(S_ISREG(status_of(rows[i].file).st_mode));
        ck_assert_double_eq(value_in(rows[i].file), 2 + i);
    }
    ck_assert(!save(10, "way/real"));
    ck_assert_double_eq(value_in("disk/real"), 10);
    ck_assert_uint_eq(status_of("disk/real").st_mode & 07777, 0600);
    ck_assert_uint_eq(status_of("disk/new").st_mode & 07777, 0644);
    snprintf(whole, sizeof whole, "%s/disk/far", folder);
    ck_assert_int_eq(symlink(whole, "absolute"), 0);
    ck_assert(!save(11, "absolute"));
    ck_assert_double_eq(value_in("disk/far"), 11);
    ck_assert_int_eq(names_in("disk"), 4); /* real, up, new, far: no temporary file */
}

TEST(links_that_lead_nowhere)
{
    static const struct {
        const char *target, *why;
    } rows[] = {{"link", "cannot create it: Too many levels of symbolic links"},
                {"no/such/folder", "cannot create it: No such file or directory"},
                {".", "it exists and is not a regular file"},
                {"/dev/null", "it exists and is not a regular file"},
                {"/dev/stdin", "it exists and is not a regular file"}};
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(dup2(ends[0], 0), 0);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(symlink(rows[i].target, "link"), 0);
        ck_assert_int_eq(save(1, "link"), GD_ERROR_IO);
        ck_assert_error(ctx, rows[i].why);
        ck_assert_int_eq(names_in("."), 1);
        remove("link");
    }
}

/* Where everybody may put a link, somebody else's would let him choose what this process writes. */
TEST(links_of_strangers_are_not_followed)
{
    if (geteuid() != 0) return;
    ck_assert_int_eq(mkdir("all", 0755), 0);
    ck_assert_int_eq(chmod("all", 01777), 0);
    ck_assert_int_eq(symlink("../victim", "all/link"), 0);
    ck_assert_int_eq(lchown("all/link", 1234, 1234), 0);
    ck_assert_int_eq(save(1, "all/link"), GD_ERROR_IO);
    ck_assert_error(ctx, "all/link: cannot create it: Permission denied");
    ck_assert_int_ne(access("victim", F_OK), 0);
    ck_assert(S_ISLNK(status_of("all/link").st_mode));
    ck_assert_int_eq(lchown("all/link", 0, 0), 0);
    ck_assert(!save(2, "all/link"));
    ck_assert_double_eq(value_in("victim"), 2);
    ck_assert_int_eq(chmod("all", 0777), 0); /* there anybody could replace the file itself */
    ck_assert_int_eq(lchown("all/link", 1234, 1234), 0);
    ck_assert(!save(3, "all/link"));
    ck_assert_double_eq(value_in("victim"), 3);
}

TEST(names_of_every_length)
{
    static const int lengths[] = {1, 95, 96, 97, 200, 244, 245, 250, 254, 255, 256};
    char name[300], deep[5000] = "";
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const int length = lengths[i];
        memset(name, 'x', sizeof name);
        name[length] = '\0';
        const gd_status failed = save(length, name);
        ck_assert_msg(!failed == (length <= 255), "%d bytes: %s", length, gd_error(ctx));
        if (failed) ck_assert_error(ctx, "File name too long");
        if (failed) continue;
        ck_assert(!save(length + 1, name));
        ck_assert_double_eq(value_in(name), length + 1);
        ck_assert_int_eq(names_in("."), 1);
        remove(name);
    }
    while (strlen(deep) < 4093) strcat(deep, "./");
    strcat(deep, "x"); /* the longest path that Linux takes */
    ck_assert_uint_eq(strlen(deep), 4095);
    ck_assert(!save(7, deep));
    ck_assert_double_eq(value_in("x"), 7);
}

/* The new file takes the place of one name; the old one keeps its others. */
TEST(other_names_keep_the_old_file)
{
    ck_assert(!save(1, "file"));
    ck_assert_int_eq(link("file", "other"), 0);
    ck_assert(!save(2, "file"));
    ck_assert_double_eq(value_in("file"), 2);
    ck_assert_double_eq(value_in("other"), 1);
}

CHECK_MAIN_WITHIN("files that are saved over", set_up, tear_down)
