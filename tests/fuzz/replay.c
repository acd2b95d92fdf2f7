/* Runs a fuzz target on every file of a folder, without a fuzzer: `make test` replays the seeds and the inputs that
 * once were findings. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        return 1;
    }
    size_t size = (size_t)ftell(file);
    uint8_t *data = malloc(size ? size : 1); /* exactly: a sanitizer sees one byte too many */
    rewind(file);
    int failed = !data || fread(data, 1, size, file) != size;
    fclose(file);
    if (!failed)
        LLVMFuzzerTestOneInput(data, size);
    free(data);
    return failed;
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    size_t n_inputs = 0;
    int failed = 0;
    if (!folder) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char path[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        printf("%s\n", path);
        fflush(stdout);
        failed |= replay(path);
        n_inputs++;
    }
    closedir(folder);
    printf("%zu inputs\n", n_inputs);
    return failed || n_inputs == 0;
}
