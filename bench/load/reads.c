/* Reads of open files, whose kind may change while they are open:
 *
 *   reads lay FILE BYTES                                    writes a file
 *   reads direct|buffered SEED JOBS FILE[,FILE...] PHASE... reads
 *
 * JOBS threads share one FILE, which is opened once, or have a file each. A PHASE is WHAT:BLOCK:SECONDS[:SPAN]:
 *
 * seq    the threads of a file take one block after the other, and go on where the last such phase ended
 * rand   the threads take blocks by chance (SEED)
 *
 * With SPAN only the first SPAN bytes of a file are read, over and over. Without it every block is read once before any is
 * read again, and then each pass begins at another multiple of 4 KiB within a block: reads do not repeat earlier ones, even
 * if more is read than the file has.
 *
 * Every 4 KiB begin with their number, which reads compare for their first 4 KiB. Sizes of files, BLOCK and SPAN must be
 * powers of two. Prints a line for each phase: reads, then those that ended in each 100 ms.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_JOBS = 256, MOST_PHASES = 16, GRAIN = 4096, SLOTS_PER_SECOND = 10, MOST_SLOTS = 6000 };

struct file {
    int fd;
    uint64_t size;
    uint64_t next_seq, next_rand; /* taken by the threads that share the file */
};

struct phase {
    int by_chance;
    uint64_t block, span;
    double seconds;
    uint64_t slots[MOST_SLOTS];
};

static struct file files[MOST_JOBS];
static struct phase phases[MOST_PHASES];
static int jobs, file_count, phase_count;
static uint64_t seed;
static double began;
static pthread_barrier_t barrier;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "wrong");
    exit(1);
}

/* A permutation of the numbers below a power of two, without constant steps. */
static uint64_t shuffled(uint64_t x, uint64_t mask, uint64_t key) {
    int half = mask ? (64 - __builtin_clzll(mask) + 1) / 2 : 1;
    for (int round = 0; round < 3; round++) {
        key = key * 6364136223846793005u + 1442695040888963407u;
        x = (x + (key >> 20)) & mask;
        x = x * (key >> 30 | 1) & mask;
        x ^= x >> half;
    }
    return x;
}

/* A number by chance for each n. */
static uint64_t by_chance(uint64_t n) {
    n = (n + seed * 1000003) * 0x9E3779B97F4A7C15u;
    n = (n ^ n >> 30) * 0xBF58476D1CE4E5B9u;
    n = (n ^ n >> 27) * 0x94D049BB133111EBu;
    return n ^ n >> 31;
}

/* Where a pass begins within a block: 0, a half, a quarter, three quarters, an eighth... */
static uint64_t shift_of(uint64_t pass, uint64_t block) {
    uint64_t shift = 0, places = block / GRAIN;
    pass %= places;
    for (uint64_t part = block / 2; pass; pass >>= 1, part >>= 1)
        if (pass & 1) shift += part;
    return shift;
}

/* The place of the next read of a phase. */
static uint64_t place(struct file *file, const struct phase *phase) {
    uint64_t span = phase->span ? phase->span : file->size, blocks = span / phase->block;
    uint64_t *next = phase->by_chance ? &file->next_rand : &file->next_seq;
    for (;;) {
        uint64_t n = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED), pass = n / blocks, at = n % blocks;
        if (phase->by_chance) at = phase->span ? by_chance(n) & (blocks - 1) : shuffled(at, blocks - 1, seed + pass);
        at = at * phase->block + (phase->span ? 0 : shift_of(pass, phase->block));
        if (at + phase->block <= span) return at;
    }
}

static void *job(void *argument) {
    long number = (long)argument;
    struct file *file = &files[file_count == 1 ? 0 : number];
    char *bytes;
    if (posix_memalign((void **)&bytes, GRAIN, 16 << 20)) fail("memory");
    for (struct phase *phase = phases; phase < phases + phase_count; phase++) {
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) began = now();
        pthread_barrier_wait(&barrier);
        for (;;) {
            uint64_t at = place(file, phase), number_there;
            errno = 0;
            if (pread(file->fd, bytes, phase->block, at) != (ssize_t)phase->block) fail("read");
            memcpy(&number_there, bytes, sizeof number_there);
            if (number_there != at / GRAIN) errno = 0, fail("the bytes that were read");
            double passed = now() - began;
            /* A read that ends later does not count. */
            if (passed >= phase->seconds) break;
            __atomic_fetch_add(&phase->slots[(int)(passed * SLOTS_PER_SECOND)], 1, __ATOMIC_RELAXED);
        }
    }
    free(bytes);
    return NULL;
}

static int lay(const char *path, uint64_t size) {
    static uint64_t bytes[(1 << 20) / sizeof(uint64_t)];
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    if (fd < 0) fail(path);
    srandom(1);
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) bytes[i] = (uint64_t)random() << 32 | random();
    for (uint64_t at = 0; at < size; at += sizeof bytes) {
        for (uint64_t i = 0; i < sizeof bytes; i += GRAIN) bytes[i / sizeof *bytes] = (at + i) / GRAIN;
        if (pwrite(fd, bytes, sizeof bytes, at) != sizeof bytes) fail(path);
    }
    if (fsync(fd) || close(fd)) fail(path);
    return 0;
}

static int is_power(uint64_t n) { return n && !(n & (n - 1)); }

static int parse(const char *word, struct phase *phase) {
    char what[8];
    double seconds;
    unsigned long long block, span = 0;
    if (sscanf(word, "%7[a-z]:%llu:%lf:%llu", what, &block, &seconds, &span) < 3) return 0;
    phase->by_chance = !strcmp(what, "rand");
    phase->block = block, phase->span = span, phase->seconds = seconds;
    return (phase->by_chance || !strcmp(what, "seq")) && is_power(block) && block >= GRAIN && block <= 16 << 20 &&
           (!span || (is_power(span) && span >= block)) && seconds > 0 && seconds * SLOTS_PER_SECOND < MOST_SLOTS;
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "lay")) return lay(argv[2], strtoull(argv[3], NULL, 10));
    int direct = argc > 1 && !strcmp(argv[1], "direct");
    phase_count = argc - 5;
    if (argc < 6 || phase_count > MOST_PHASES || (!direct && strcmp(argv[1], "buffered")))
        return fprintf(stderr, "usage: see the source\n"), 2;
    seed = strtoull(argv[2], NULL, 10), jobs = atoi(argv[3]);
    if (jobs < 1 || jobs > MOST_JOBS) return fprintf(stderr, "1 to %d jobs\n", MOST_JOBS), 2;
    for (int i = 0; i < phase_count; i++)
        if (!parse(argv[5 + i], &phases[i])) return fprintf(stderr, "%s is no phase\n", argv[5 + i]), 2;
    for (char *path = strtok(argv[4], ","); path; path = strtok(NULL, ",")) {
        if (file_count == jobs) return fprintf(stderr, "more files than jobs\n"), 2;
        struct file *file = &files[file_count++];
        struct stat found;
        file->fd = open(path, O_RDONLY | (direct ? O_DIRECT : 0));
        if (file->fd < 0 || fstat(file->fd, &found)) fail(path);
        file->size = found.st_size;
        for (int i = 0; i < phase_count; i++)
            if (!is_power(file->size) || file->size < 2 * phases[i].block || file->size < phases[i].span)
                return fprintf(stderr, "%s has not the size for this\n", path), 2;
    }
    if (file_count != 1 && file_count != jobs) return fprintf(stderr, "one file, or one for each job\n"), 2;
    pthread_barrier_init(&barrier, NULL, jobs);
    pthread_t threads[MOST_JOBS];
    for (long i = 0; i < jobs; i++)
        if (pthread_create(&threads[i], NULL, job, (void *)i)) fail("thread");
    for (int i = 0; i < jobs; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < phase_count; i++) {
        int slots = (int)(phases[i].seconds * SLOTS_PER_SECOND + 0.999);
        uint64_t reads = 0;
        for (int slot = 0; slot < slots; slot++) reads += phases[i].slots[slot];
        printf("%llu", (unsigned long long)reads);
        for (int slot = 0; slot < slots; slot++) printf(" %llu", (unsigned long long)phases[i].slots[slot]);
        printf("\n");
    }
    return 0;
}
