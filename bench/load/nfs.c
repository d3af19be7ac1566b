/* A load for an NFS server, by libnfs, over one connection:
 *
 *   nfs write|read|randread|commit|remove URL FILE BLOCK DEPTH BYTES SECONDS
 *
 * write      the file's BYTES in order in requests of BLOCK, then a COMMIT; over what is there
 * read       the same in order
 * randread   in an order by chance, each block at most once
 * commit     writes in an order by chance, each followed by a COMMIT before its place writes again
 * remove     the file
 *
 * DEPTH requests are under way at a time. Ends after SECONDS, or when every block was done once. Every 4 KiB begin with
 * their number, which reads compare. BYTES / BLOCK must be a power of two. Prints one line: bytes, operations, seconds,
 * the mean latency of an operation in microseconds.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <nfsc/libnfs.h>

enum { MOST_DEPTH = 256, GRAIN = 4096 };
enum what { WRITE, READ, RANDREAD, COMMIT };

struct place {
    uint64_t offset;
    double since;
    char *bytes;
};

static struct nfs_context *nfs;
static struct nfsfh *file;
static enum what what;
static uint64_t block, blocks, next_block, done, under_way;
static double start, most_seconds, latency;
static struct place places[MOST_DEPTH];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void check(int good, const char *action) {
    if (good) return;
    fprintf(stderr, "%s: %s\n", action, nfs_get_error(nfs));
    exit(1);
}

/* The n-th block: of those by chance, a linear congruence that meets each number below a power of two once. */
static uint64_t nth(uint64_t n) {
    static uint64_t x = 12345;
    if (what == WRITE || what == READ) return n;
    x = (x * 6364136223846793005u + 1442695040888963407u) & (blocks - 1);
    return x;
}

static void begin(struct place *place);

static void ended(int result, struct place *place) {
    check(result >= 0, "request");
    latency += now() - place->since;
    done++;
    under_way--;
    begin(place);
}

static void on_commit(int result, struct nfs_context *n, void *data, void *private) {
    (void)n, (void)data;
    ended(result, private);
}

static void on_write(int result, struct nfs_context *n, void *data, void *private) {
    (void)n, (void)data;
    check(result == (int)block, "a write is short");
    if (what != COMMIT) ended(result, private);
    else check(nfs_fsync_async(nfs, file, on_commit, private) == 0, "commit");
}

static void on_read(int result, struct nfs_context *n, void *data, void *private) {
    (void)n;
    struct place *place = private;
    check(result == (int)block, "a read is short");
    for (uint64_t at = 0; at < block; at += GRAIN) {
        uint64_t number;
        memcpy(&number, (char *)data + at, sizeof number);
        if (number != (place->offset + at) / GRAIN) {
            fprintf(stderr, "wrong bytes at %llu\n", (unsigned long long)(place->offset + at));
            exit(1);
        }
    }
    ended(result, place);
}

static void begin(struct place *place) {
    place->since = now();
    if (next_block == blocks || place->since - start >= most_seconds) return;
    place->offset = nth(next_block++) * block;
    under_way++;
    if (what == READ || what == RANDREAD) {
        check(nfs_pread_async(nfs, file, place->offset, block, on_read, place) == 0, "read");
        return;
    }
    for (uint64_t at = 0; at < block; at += GRAIN) {
        uint64_t number = (place->offset + at) / GRAIN;
        memcpy(place->bytes + at, &number, sizeof number);
    }
    check(nfs_pwrite_async(nfs, file, place->offset, block, place->bytes, on_write, place) == 0, "write");
}

int main(int count, char **words) {
    static const char *const names[] = {"write", "read", "randread", "commit"};
    if (count != 8) return fprintf(stderr, "usage: nfs WHAT URL FILE BLOCK DEPTH BYTES SECONDS\n"), 2;
    nfs = nfs_init_context();
    struct nfs_url *url = nfs_parse_url_dir(nfs, words[2]);
    check(url != NULL, "the URL");
    check(nfs_mount(nfs, url->server, url->path) == 0, "mount");
    char path[256];
    snprintf(path, sizeof path, "/%s", words[3]);
    if (!strcmp(words[1], "remove")) {
        check(nfs_unlink(nfs, path) == 0, "remove");
        return 0;
    }
    for (what = WRITE; strcmp(words[1], names[what]);)
        if (++what > COMMIT) return fprintf(stderr, "no such load\n"), 2;
    block = strtoull(words[4], NULL, 10);
    uint64_t depth = strtoull(words[5], NULL, 10);
    blocks = strtoull(words[6], NULL, 10) / block;
    most_seconds = atof(words[7]);
    if (depth < 1 || depth > MOST_DEPTH || block % GRAIN || !blocks || blocks & (blocks - 1)) return 2;
    if (nfs_open(nfs, path, O_RDWR, &file) != 0)
        check(nfs_create(nfs, path, O_RDWR, 0644, &file) == 0, "create");
    srandom(1);
    for (uint64_t i = 0; i < depth; i++) {
        places[i].bytes = malloc(block);
        for (uint64_t at = 0; at < block; at++) places[i].bytes[at] = random();
    }
    start = now();
    for (uint64_t i = 0; i < depth; i++) begin(&places[i]);
    while (under_way) {
        struct pollfd wait = {.fd = nfs_get_fd(nfs), .events = nfs_which_events(nfs)};
        if (poll(&wait, 1, 60000) <= 0) return fprintf(stderr, "no answer for a minute\n"), 1;
        check(nfs_service(nfs, wait.revents) == 0, "connection");
    }
    if (what == WRITE) check(nfs_fsync(nfs, file) == 0, "commit");
    double seconds = now() - start;
    check(nfs_close(nfs, file) == 0, "close");
    printf("%llu %llu %.6f %.1f\n", (unsigned long long)(done * block), (unsigned long long)done, seconds,
           done ? latency / done * 1e6 : 0);
    return 0;
}
