/* A load of small files: creates (1 KiB each), stats or unlinks them with several processes in one directory.
 *
 *   metadata create DIR PROCESSES FILES SECONDS LIMIT MOST   at least FILES by each process and at least SECONDS, at
 *                                                       most LIMIT seconds and MOST files; prints how many each made
 *   metadata stat|unlink DIR PROCESSES N0 N1 ...        the files that create made, in its order
 *
 * Prints one line: files, seconds, then the count of each process.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_PROCESSES = 64, FILE_BYTES = 1024 };

struct shared {
    int ready;                  /* processes that wait for the start */
    int go;
    long done[MOST_PROCESSES];
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int create(const char *path) {
    char bytes[FILE_BYTES];
    memset(bytes, 's', sizeof bytes);
    int file = open(path, O_CREAT | O_EXCL | O_WRONLY, 0644);
    if (file < 0) return -1;
    int bad = write(file, bytes, sizeof bytes) != sizeof bytes;
    return close(file) || bad ? -1 : 0;
}

static int look(const char *path) {
    struct stat found;
    if (stat(path, &found)) return -1;
    if (found.st_size == FILE_BYTES) return 0;
    errno = EIO;
    return -1;
}

int main(int argc, char **argv) {
    if (argc < 5) return fprintf(stderr, "usage: see the source\n"), 2;
    const char *what = argv[1], *dir = argv[2];
    int processes = atoi(argv[3]), creating = !strcmp(what, "create");
    if (processes < 1 || processes > MOST_PROCESSES || argc < 4 + (creating ? 4 : processes)) return 2;
    struct shared *shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int (*act)(const char *) = creating ? create : !strcmp(what, "stat") ? look : unlink;

    for (int p = 0; p < processes; p++) {
        if (fork()) continue;
        long least = atol(argv[creating ? 4 : 4 + p]);
        double seconds = creating ? atof(argv[5]) : 0, limit = creating ? atof(argv[6]) : 1e9;
        long most = creating ? atol(argv[7]) : least;
        __atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST);
        while (!__atomic_load_n(&shared->go, __ATOMIC_SEQ_CST)) usleep(100);
        double start = now();
        for (long i = 0;; i++) {
            double spent = now() - start;
            if (i >= most || spent >= limit || (i >= least && spent >= seconds)) break;
            char path[4096];
            snprintf(path, sizeof path, "%s/p%d.%ld", dir, p, i);
            if (act(path)) perror(path), _exit(1);
            shared->done[p] = i + 1;
        }
        _exit(0);
    }
    while (__atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) < processes) usleep(100);
    double start = now();
    __atomic_store_n(&shared->go, 1, __ATOMIC_SEQ_CST);
    int bad = 0, status;
    for (int p = 0; p < processes; p++) wait(&status), bad |= status;
    double seconds = now() - start;
    long files = 0;
    for (int p = 0; p < processes; p++) files += shared->done[p];
    printf("%ld %.6f", files, seconds);
    for (int p = 0; p < processes; p++) printf(" %ld", shared->done[p]);
    printf("\n");
    return bad != 0;
}
