/* file_kind.c - see file_kind.h. */
#include "files/file_kind.h"

#include <string.h>

const char gd_file_pointer[] = "it is a Git LFS pointer; \"git lfs pull\" fetches the file itself";

const char *gd_file_kind(const void *first, size_t size)
{
    static const struct {
        const char *mark, *kind;
    } kinds[] = {
        {"version https://git-lfs.", gd_file_pointer},
        {"PK\x03\x04", "it is a zip archive, as .npz and PyTorch's .bin, .pt and .pth files are"},
        {"\x80\x02\x8a\nl\xfc\x9c\x46", "it is a pickle, as old files of PyTorch are"},
        {"GGUF", "it is a GGUF file"},
        {"\x89HDF\r\n", "it is an HDF5 file"},
        {"PAR1", "it is a Parquet file"},
        {"ARROW1", "it is an Arrow file"},
        {"MMIDIDX", "it is an index of Megatron; its token file is the .bin beside it"},
        {"\x1f\x8b\x08", "it is compressed by gzip"},
        {"\x28\xb5\x2f\xfd", "it is compressed by zstd"},
        {"\xfd"
         "7zXZ",
         "it is compressed by xz"},
        {"<!DOCTYPE", "it is a web page"},
        {"<!doctype", "it is a web page"},
        {"<html", "it is a web page"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const size_t length = strlen(kinds[i].mark);
        if (size >= length && !memcmp(first, kinds[i].mark, length)) return kinds[i].kind;
    }
    return NULL;
}

bool gd_file_is_text(const void *first, size_t size)
{
    const unsigned char *c = first, *end = c + size;
    while (c < end && ((*c >= '\t' && *c <= '\r') || (*c >= ' ' && *c <= '~'))) c++;
    return c == end;
}
