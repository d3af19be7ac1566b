/* Loads of the growth rows, through a mount. Each prints what it measured and ends.
 *
 *   growth create|stat|unlink DIR PER_DIR FILES COUNT PHASE PROCESSES
 *                                 COUNT of the FILES files of DIR, by so many processes at once; PHASE says which ones.
 *                                 PER_DIR: files of one directory below DIR, 0 for all in DIR. The COUNT are spread
 *                                 evenly over the files of up to 100 directories, and those evenly over all
 *                                 directories: as many directories are looked up whatever FILES is. Prints seconds.
 *   growth list DIR               entries of DIR and of the directories in it, one level deep; prints how many, seconds
 *   growth open DIR FIRST FILES   opens FILES files from FIRST on; prints seconds, waits for a line, closes them, prints
 *                                 seconds
 *   growth loop FILE              writes 4 KiB and syncs them until SIGTERM; prints how often, the longest in ms
 *   growth overwrite FILE BYTES COUNT EVERY
 *                                 COUNT overwrites of 4 KiB at random places below BYTES, fsync after EVERY; prints the
 *                                 seconds of each EVERY
 *   growth length FILE BYTES UNLINK
 *                                 a sparse file: prints the seconds of each step with its name; UNLINK 0 leaves it
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_PROCESSES = 64, BLOCK = 4096, DIRECTORIES = 100 };

static volatile sig_atomic_t ended;

static void end(int signal) {
    (void)signal;
    ended = 1;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int fail(const char *what) {
    perror(what);
    return 1;
}

/* The same names as meta's example `fill` gives. */
static void name(char *path, size_t room, const char *dir, long per_dir, long i) {
    if (per_dir) snprintf(path, room, "%s/d%08ld/f%08ld", dir, i / per_dir, i);
    else snprintf(path, room, "%s/f%08ld", dir, i);
}

static int act(const char *what, const char *path) {
    if (!strcmp(what, "create")) {
        int file = open(path, O_CREAT | O_EXCL | O_WRONLY, 0644);
        return file < 0 || close(file) ? -1 : 0;
    }
    struct stat found;
    return strcmp(what, "stat") ? unlink(path) : stat(path, &found);
}

static int names(char **argv) {
    const char *what = argv[1], *dir = argv[2];
    long per_dir = atol(argv[3]), files = atol(argv[4]), count = atol(argv[5]), phase = atol(argv[6]);
    int processes = atoi(argv[7]);
    /* Looked at: `used` of all `dirs` directories, in each `each` of its `in_dir` files. */
    long in_dir = per_dir ? per_dir : files, dirs = files / in_dir, used = dirs < DIRECTORIES ? dirs : DIRECTORIES;
    if (used < 1 || count < used) return 2;
    long each = count / used, stride = in_dir / each;
    if (processes < 1 || processes > MOST_PROCESSES || stride < 1) return 2;
    struct { int ready, go; } *shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int p = 0; p < processes; p++) {
        if (fork()) continue;
        __atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST);
        while (!__atomic_load_n(&shared->go, __ATOMIC_SEQ_CST)) usleep(100);
        /* In an order that is not that of the names: a large prime goes round. */
        for (long k = p; k < count; k += processes) {
            char path[4096];
            long at = (k * 7919L + 13) % count;
            long first = at / each % used * (dirs / used) * in_dir;
            name(path, sizeof path, dir, per_dir, first + at % each * stride + phase % stride);
            if (act(what, path)) _exit(fail(path));
        }
        _exit(0);
    }
    while (__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) < processes) usleep(100);
    double start = now();
    __atomic_store_n(&shared->go, 1, __ATOMIC_SEQ_CST);
    int bad = 0, status;
    for (int p = 0; p < processes; p++) wait(&status), bad |= status;
    printf("%.6f\n", now() - start);
    return bad != 0;
}

static long list(const char *path, int deep) {
    DIR *dir = opendir(path);
    if (!dir) return -1;
    long count = 0;
    struct dirent *entry;
    while (errno = 0, (entry = readdir(dir))) {
        if (entry->d_name[0] == '.') continue;
        count++;
        if (deep && entry->d_type == DT_DIR) {
            char below[4096];
            snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
            long more = list(below, 0);
            if (more < 0) return -1;
            count += more;
        }
    }
    int bad = errno;
    closedir(dir);
    return bad ? (errno = bad, -1) : count;
}

static int list_all(char **argv) {
    double start = now();
    long count = list(argv[2], 1);
    if (count < 0) return fail(argv[2]);
    printf("%ld %.6f\n", count, now() - start);
    return 0;
}

static int open_many(char **argv) {
    long first = atol(argv[3]), files = atol(argv[4]);
    int *open_files = malloc(files * sizeof *open_files);
    double start = now();
    for (long i = 0; i < files; i++) {
        char path[4096];
        name(path, sizeof path, argv[2], 0, first + i);
        if ((open_files[i] = open(path, O_RDWR)) < 0) return fail(path);
    }
    printf("%.6f\n", now() - start);
    fflush(stdout);
    getchar();
    start = now();
    for (long i = 0; i < files; i++)
        if (close(open_files[i])) return fail("close");
    printf("%.6f\n", now() - start);
    return 0;
}

static int loop(char **argv) {
    struct sigaction action = { .sa_handler = end };
    sigaction(SIGTERM, &action, 0);
    char bytes[BLOCK];
    memset(bytes, 'l', sizeof bytes);
    int file = open(argv[2], O_CREAT | O_WRONLY, 0644);
    if (file < 0) return fail(argv[2]);
    double longest = 0;
    long count = 0;
    while (!ended) {
        double start = now();
        if (pwrite(file, bytes, sizeof bytes, count % 256 * BLOCK) != BLOCK || fsync(file)) {
            if (ended && errno == EINTR) break;
            return fail("write and fsync");
        }
        double spent = now() - start;
        if (spent > longest) longest = spent;
        count++;
    }
    printf("%ld %.3f\n", count, longest * 1e3);
    return 0;
}

static uint64_t random_number(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static int overwrite(char **argv) {
    long blocks = atol(argv[3]) / BLOCK, count = atol(argv[4]), every = atol(argv[5]);
    int file = open(argv[2], O_WRONLY);
    if (file < 0) return fail(argv[2]);
    uint64_t state = 88172645463325252u;
    double start = now();
    for (long i = 1; i <= count; i++) {
        char bytes[BLOCK];
        memset(bytes, (int)i, sizeof bytes);
        if (pwrite(file, bytes, sizeof bytes, (off_t)(random_number(&state) % blocks) * BLOCK) != BLOCK) return fail("write");
        if (i % every) continue;
        if (fsync(file)) return fail("fsync");
        printf("%.6f\n", now() - start);
        fflush(stdout);
        start = now();
    }
    return 0;
}

static double started;

static void step(const char *what) {
    printf("%s %.6f\n", what, now() - started);
    fflush(stdout);
    started = now();
}

static int length(char **argv) {
    off_t bytes = atoll(argv[3]);
    static char buffer[1 << 20];
    struct stat found;
    started = now();
    int file = open(argv[2], O_CREAT | O_EXCL | O_RDWR, 0644);
    if (file < 0 || ftruncate(file, bytes)) return fail("truncate");
    step("create");
    memset(buffer, 'e', BLOCK);
    if (pwrite(file, buffer, BLOCK, bytes - BLOCK) != BLOCK || fsync(file)) return fail("write");
    step("write");
    for (int i = 0; i < 16; i++)
        if (pread(file, buffer, sizeof buffer, bytes / 16 * i / BLOCK * BLOCK) != sizeof buffer) return fail("read");
    step("read");
    if (stat(argv[2], &found) || found.st_size != bytes) return fail("stat");
    step("stat");
    off_t data = lseek(file, 0, SEEK_DATA);
    off_t hole = data < 0 ? -1 : lseek(file, data, SEEK_HOLE);
    if (data < 0 || hole < 0) return fail("seek");
    step("seek");
    if (ftruncate(file, bytes / 2 / BLOCK * BLOCK + 1)) return fail("cut");
    step("cut");
    if (pwrite(file, buffer, BLOCK, bytes - BLOCK) != BLOCK || fsync(file)) return fail("write again");
    step("regrow");
    close(file);
    started = now();
    if (atoi(argv[4])) {
        if (unlink(argv[2])) return fail("unlink");
        step("unlink");
    }
    printf("data %lld\n", (long long)data);
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (argc == 8 && (!strcmp(what, "create") || !strcmp(what, "stat") || !strcmp(what, "unlink"))) return names(argv);
    if (argc == 3 && !strcmp(what, "list")) return list_all(argv);
    if (argc == 5 && !strcmp(what, "open")) return open_many(argv);
    if (argc == 3 && !strcmp(what, "loop")) return loop(argv);
    if (argc == 6 && !strcmp(what, "overwrite")) return overwrite(argv);
    if (argc == 5 && !strcmp(what, "length")) return length(argv);
    return fprintf(stderr, "usage: see the source\n"), 2;
}
