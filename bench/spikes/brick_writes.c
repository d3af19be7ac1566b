/* What a brick's writes cost, by the way that they go: see brick_writes.sh, which runs this and makes the table.
 *
 *   move FILE MIB WRITE READ     units of 128 KiB to fresh blocks, one fdatasync per 4 MiB; all units read again, twice;
 *                                4 KiB at random, one at a time. WRITE, READ: buffered | direct
 *   ways FILE MIB WAY BLOCKS SYNC TIME RATE
 *       WAY     plain   pwrite
 *               nowait  pwritev2(RWF_NOWAIT); what it does not take goes through io_uring, as in a brick
 *               ring    all through io_uring
 *       BLOCKS  sparse | allocated
 *       SYNC    inline  fdatasync by the writer, so that nothing is in flight meanwhile
 *               beside  through io_uring while the next writes go on, as in a brick
 *       TIME    mtime   the file's time of change is kept, as always
 *               notime  it is not: the file is opened by its handle (XFS only)
 *       RATE    units in a second; 0: as fast as it goes
 *   hazard FILE MIB HOW SECONDS DEPTH KIB
 *       direct writes at random, of every other KIB of the file, DEPTH at once through io_uring, an fdatasync after
 *       each batch, beside two threads that read all through the page cache and two that do
 *       HOW  none | read | mmap-read | write | mmap-write     to the rest of the file; none: nor do others read
 *
 * It prints `name value` pairs. Sources: io_uring_enter(2), pwritev2(2); fs/iomap/direct-io.c, fs/xfs/xfs_ioctl.c and
 * fs/xfs/xfs_handle.c of Linux 6.18. Build: gcc -O2 -pthread. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define UNIT (128 << 10)
#define BLOCK 4096
#define PER_SYNC 32 /* units: 4 MiB */
#define SLOTS 64
#define DEPTH 8 /* units on their way at once where a ring is used */

static void die(const char *what) { perror(what); exit(1); }

static double now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec + at.tv_nsec / 1e9;
}

/* CPU-seconds of the whole machine since it started: loop devices and writeback work in threads of the kernel. */
static double machine(void)
{
	unsigned long long user, nice, system, idle, wait, irq, soft;
	FILE *file = fopen("/proc/stat", "r");
	if (!file || fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &wait, &irq,
			    &soft) != 7)
		die("/proc/stat");
	fclose(file);
	return (double)(user + nice + system + irq + soft) / sysconf(_SC_CLK_TCK);
}

/* CPU-seconds of this process and of its ring's workers, not those of loop devices and writeback. */
static double own(void)
{
	struct timespec at;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
	return at.tv_sec + at.tv_nsec / 1e9;
}

static uint64_t chance(void)
{
	static _Thread_local uint64_t state;
	if (!state)
		state = 0x9e3779b97f4a7c15u ^ (uintptr_t)&state;
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return state;
}

/* ---------------------------------------------------------------- a ring */

static struct {
	int fd;
	unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
	unsigned in_flight;
} ring;

static void ring_open(void)
{
	struct io_uring_params p = {0};
	ring.fd = syscall(SYS_io_uring_setup, SLOTS, &p);
	if (ring.fd < 0)
		die("io_uring_setup");
	size_t sq = p.sq_off.array + p.sq_entries * sizeof(unsigned);
	size_t cq = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
	char *rings = mmap(NULL, sq > cq ? sq : cq, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd,
			   IORING_OFF_SQ_RING);
	ring.sqes = mmap(NULL, p.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQES);
	if (rings == MAP_FAILED || (void *)ring.sqes == MAP_FAILED || !(p.features & IORING_FEAT_SINGLE_MMAP))
		die("io_uring's memory");
	ring.sq_tail = (void *)(rings + p.sq_off.tail), ring.sq_mask = (void *)(rings + p.sq_off.ring_mask);
	ring.sq_array = (void *)(rings + p.sq_off.array), ring.cqes = (void *)(rings + p.cq_off.cqes);
	ring.cq_head = (void *)(rings + p.cq_off.head), ring.cq_tail = (void *)(rings + p.cq_off.tail);
	ring.cq_mask = (void *)(rings + p.cq_off.ring_mask);
}

static void ring_enter(unsigned submit, unsigned wait)
{
	while (syscall(SYS_io_uring_enter, ring.fd, submit, wait, wait ? IORING_ENTER_GETEVENTS : 0, NULL, 0) < 0)
		if (errno != EINTR)
			die("io_uring_enter");
}

static void ring_submit(int op, int fd, void *at, unsigned len, uint64_t offset, uint64_t tag)
{
	unsigned tail = *ring.sq_tail, slot = tail & *ring.sq_mask;
	ring.sqes[slot] = (struct io_uring_sqe){.opcode = op, .fd = fd, .addr = (uintptr_t)at, .len = len, .off = offset,
						.user_data = tag};
	if (op == IORING_OP_FSYNC)
		ring.sqes[slot].fsync_flags = IORING_FSYNC_DATASYNC;
	ring.sq_array[slot] = slot;
	__atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
	ring.in_flight++;
	ring_enter(1, 0);
}

/* Waits for one answer; false: there is none and `wait` is not set. */
static bool ring_answer(bool wait, struct io_uring_cqe *answer)
{
	while (*ring.cq_head == __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE)) {
		if (!wait)
			return false;
		ring_enter(0, 1);
	}
	*answer = ring.cqes[*ring.cq_head & *ring.cq_mask];
	__atomic_store_n(ring.cq_head, *ring.cq_head + 1, __ATOMIC_RELEASE);
	ring.in_flight--;
	return true;
}

#define SYNC_TAG 1

/* Takes what is done; waits until at most `most` are on their way. */
static void ring_down_to(unsigned most, bool *syncing)
{
	struct io_uring_cqe answer;
	while (ring_answer(ring.in_flight > most, &answer)) {
		if (answer.res < 0 || (answer.user_data != SYNC_TAG && answer.res != UNIT)) {
			errno = answer.res < 0 ? -answer.res : EIO;
			die("a ring's answer");
		}
		if (answer.user_data == SYNC_TAG && syncing)
			*syncing = false;
	}
}

/* ---------------------------------------------------------------- files */

static bool is_device(const char *path)
{
	struct stat about;
	return stat(path, &about) == 0 && S_ISBLK(about.st_mode);
}

static char *units_of_memory(unsigned count)
{
	char *memory;
	if (posix_memalign((void **)&memory, 2 << 20, (size_t)count * UNIT))
		die("memory");
	for (size_t i = 0; i < (size_t)count * UNIT; i += 8)
		*(uint64_t *)(memory + i) = i * 0x9e3779b97f4a7c15u;
	return memory;
}

/* An empty file of this size without blocks; a device stays as it is, but nothing of it is cached. */
static void fresh(const char *path, uint64_t size)
{
	int fd = open(path, O_RDWR | (is_device(path) ? 0 : O_CREAT | O_TRUNC), 0600);
	if (fd < 0 || (!is_device(path) && ftruncate(fd, size)))
		die(path);
	fsync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
}

static int opened(const char *path, bool direct)
{
	int fd = open(path, O_RDWR | (direct ? O_DIRECT : 0));
	if (fd < 0)
		die(path);
	return fd;
}

/* XFS keeps no times of a file that was opened by its handle: made for programs that move files' blocks. */
struct handle_request { /* struct xfs_fsop_handlereq of xfs_fs.h */
	uint32_t fd;
	void *path;
	uint32_t oflags;
	void *in;
	uint32_t in_len;
	void *out;
	uint32_t *out_len;
};

static int opened_without_time(const char *path)
{
	char handle[64];
	uint32_t len = sizeof handle;
	char *folder = strdup(path), *end = strrchr(folder, '/');
	if (!end)
		die("a path without a folder");
	*end = 0;
	int root = open(folder, O_RDONLY | O_DIRECTORY);
	struct handle_request to = {.fd = root, .path = (void *)path, .oflags = O_LARGEFILE, .out = handle, .out_len = &len};
	if (root < 0 || ioctl(root, _IOWR('X', 105, struct handle_request), &to))
		die("the file's handle (XFS only)");
	struct handle_request from = {.oflags = O_RDWR | O_LARGEFILE, .in = handle, .in_len = len};
	int fd = ioctl(root, _IOWR('X', 107, struct handle_request), &from);
	if (fd < 0)
		die("opening by handle");
	close(root);
	free(folder);
	return fd;
}

static void report(const char *name, double mib, double seconds, double cpu)
{
	printf("%s_mib_per_s %.1f\n%s_cpu_s_per_gib %.3f\n", name, mib / seconds, name, cpu / (mib / 1024));
}

/* ---------------------------------------------------------------- move */

static void move(const char *path, unsigned mib, bool direct_write, bool direct_read)
{
	unsigned units = mib * 8;
	char *memory = units_of_memory(PER_SYNC);
	fresh(path, (uint64_t)mib << 20);
	int fd = opened(path, direct_write), reader = opened(path, direct_read);
	double start = now(), cpu = machine();
	for (unsigned unit = 0; unit < units; unit++) {
		char *at = memory + (size_t)(unit % PER_SYNC) * UNIT;
		*(uint64_t *)at = unit;
		if (direct_write) {
			ring_down_to(DEPTH - 1, NULL);
			ring_submit(IORING_OP_WRITE, fd, at, UNIT, (uint64_t)unit * UNIT, 0);
		} else if (pwrite(fd, at, UNIT, (uint64_t)unit * UNIT) != UNIT) {
			die("write");
		}
		if (unit % PER_SYNC == PER_SYNC - 1) {
			ring_down_to(0, NULL);
			if (fdatasync(fd))
				die("fdatasync");
		}
	}
	report("write", mib, now() - start, machine() - cpu);
	for (int pass = 1; pass <= 2; pass++) {
		start = now(), cpu = machine();
		for (unsigned unit = 0; unit < units; unit++) {
			char *at = memory + (size_t)(unit % PER_SYNC) * UNIT;
			/* Not in order, for a brick's reads are not: a step that meets every unit once. */
			uint64_t which = (uint64_t)unit * 7919 % units;
			if (direct_read) {
				ring_down_to(DEPTH - 1, NULL);
				ring_submit(IORING_OP_READ, reader, at, UNIT, which * UNIT, 0);
			} else if (pread(reader, at, UNIT, which * UNIT) != UNIT || *(uint64_t *)at != which) {
				die("read");
			}
		}
		ring_down_to(0, NULL);
		report(pass == 1 ? "read1" : "read2", mib, now() - start, machine() - cpu);
	}
	unsigned done = 0;
	start = now(), cpu = machine();
	for (; now() - start < 1; done++)
		if (pread(reader, memory, BLOCK, chance() % (units * (uint64_t)(UNIT / BLOCK)) * BLOCK) != BLOCK)
			die("small read");
	printf("small_us %.2f\nsmall_cpu_us %.2f\n", (now() - start) / done * 1e6, (machine() - cpu) / done * 1e6);
}

/* ---------------------------------------------------------------- ways */

static void ways(const char *path, unsigned mib, char way, bool allocated, bool beside, bool no_time, double rate)
{
	unsigned units = mib * 8, again[2] = {0}, whole = 0, part = 0, syncs = 0;
	char *memory = units_of_memory(SLOTS);
	bool syncing = false;
	if (!allocated || access(path, F_OK))
		fresh(path, (uint64_t)mib << 20);
	int fd = no_time ? opened_without_time(path) : opened(path, false);
	for (unsigned unit = 0; allocated && unit < units; unit++)
		if (pwrite(fd, memory, UNIT, (uint64_t)unit * UNIT) != UNIT)
			die("allocation");
	if (fsync(fd))
		die("fsync");
	double start = now(), cpu = machine(), mine = own();
	for (unsigned unit = 0; unit < units; unit++) {
		char *at = memory + (size_t)(unit % SLOTS) * UNIT;
		struct iovec piece = {at, UNIT};
		uint64_t offset = (uint64_t)unit * UNIT;
		ssize_t wrote = 0;
		if (rate > 0) {
			double at_time = start + unit / rate;
			struct timespec until = {at_time, (at_time - (time_t)at_time) * 1e9};
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
		}
		ring_down_to(DEPTH, &syncing);
		if (way != 'r') {
			wrote = pwritev2(fd, &piece, 1, offset, way == 'n' ? RWF_NOWAIT : 0);
			if (wrote < 0 && errno == EAGAIN)
				again[ring.in_flight > (unsigned)syncing]++, wrote = 0;
			else if (wrote < 0)
				die("write");
			else if (wrote < UNIT)
				part++;
			else
				whole++;
		}
		/* Rare: the rest of one that came out short is written plainly, so that every answer is a unit. */
		if (wrote > 0 && wrote < UNIT && pwrite(fd, at + wrote, UNIT - wrote, offset + wrote) != UNIT - wrote)
			die("rest");
		if (wrote == 0)
			ring_submit(IORING_OP_WRITE, fd, at, UNIT, offset, 0);
		if (unit % PER_SYNC == PER_SYNC - 1) {
			syncs++;
			if (beside) {
				while (syncing)
					ring_down_to(ring.in_flight - 1, &syncing);
				syncing = true;
				ring_submit(IORING_OP_FSYNC, fd, NULL, 0, 0, SYNC_TAG);
			} else {
				ring_down_to(0, &syncing);
				if (fdatasync(fd))
					die("fdatasync");
			}
		}
	}
	ring_down_to(0, &syncing);
	if (fdatasync(fd))
		die("fdatasync");
	report("write", mib, now() - start, machine() - cpu);
	printf("own_cpu_s_per_gib %.3f\n", (own() - mine) / (mib / 1024.));
	printf("again_percent %.1f\nshort_percent %.1f\n", 100. * (again[0] + again[1]) / units, 100. * part / units);
	/* Refused while nothing else was being written, and while a worker was at it. */
	printf("again_alone %u\nagain_behind_a_worker %u\ntaken %u\n", again[0], again[1], whole);
}

/* ---------------------------------------------------------------- hazard */

static struct {
	const char *path, *how;
	uint64_t size, piece;
	atomic_bool stop;
	atomic_ulong touched;
} beside;

/* Pieces with an odd number belong to the buffered side, those with an even one to the direct writer. */
static void *toucher(void *unused)
{
	(void)unused;
	bool write = strstr(beside.how, "write"), mapped = strstr(beside.how, "mmap");
	int fd = opened(beside.path, false);
	char *bytes = calloc(1, beside.piece), *map = MAP_FAILED;
	if (mapped && (map = mmap(NULL, beside.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
		die("mmap");
	for (; !beside.stop; beside.touched++) {
		uint64_t at = (chance() % (beside.size / beside.piece / 2) * 2 + 1) * beside.piece;
		at += chance() % (beside.piece / BLOCK) * BLOCK;
		if (mapped && write)
			map[at] = (char)at;
		else if (mapped)
			*(volatile char *)(map + at - chance() % 2 * beside.piece);
		else if (write && pwrite(fd, bytes, 512, at) != 512)
			die("write");
		else if (!write && pread(fd, bytes, beside.piece, at - at % beside.piece) < 0)
			die("read");
	}
	return NULL;
}

/* Reads all of it in order, again and again, so that the kernel reads ahead, in folios larger than a piece. */
static void *reader(void *unused)
{
	(void)unused;
	int fd = opened(beside.path, false);
	char *bytes = malloc(UNIT);
	posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	for (uint64_t at = 0; !beside.stop; at = (at + UNIT) % beside.size) {
		/* What is cached in parts is filled with small folios; in a brick, the want of memory empties the cache. */
		if (at % (4 << 20) == 0)
			posix_fadvise(fd, at, 4 << 20, POSIX_FADV_DONTNEED);
		if (pread(fd, bytes, UNIT, at) < 0)
			die("read");
	}
	return NULL;
}

static void hazard(const char *path, unsigned mib, const char *how, double seconds, unsigned depth, unsigned kib)
{
	uint64_t size = (uint64_t)mib << 20, piece = (uint64_t)kib << 10, pieces = size / piece;
	uint64_t serial = 0, batches = 0, failed = 0, failed_syncs = 0, wrong = 0;
	char *memory = units_of_memory(depth), *check = units_of_memory(1);
	fresh(path, size);
	int plain = opened(path, false), fd = opened(path, true);
	for (uint64_t at = 0; at < size; at += UNIT)
		if (pwrite(plain, memory, UNIT, at) != UNIT)
			die("filling");
	fsync(plain);
	posix_fadvise(plain, 0, 0, POSIX_FADV_DONTNEED);
	beside.path = path, beside.how = how, beside.size = size, beside.piece = piece;
	pthread_t threads[4];
	int others = strcmp(how, "none") ? 4 : 0;
	for (int i = 0; i < others; i++)
		pthread_create(&threads[i], NULL, i % 2 ? toucher : reader, NULL);
	double start = now(), first = -1;
	for (; now() - start < seconds; batches++) {
		uint64_t at[SLOTS];
		struct io_uring_cqe answer;
		for (unsigned i = 0; i < depth; i++) { /* different ones: a step through even pieces from a chance start */
			at[i] = (i ? at[i - 1] / piece + 34 : chance() % (pieces / 2) * 2) % pieces * piece;
			*(uint64_t *)(memory + i * piece) = ++serial;
			ring_submit(IORING_OP_WRITE, fd, memory + i * piece, piece, at[i], 0);
		}
		while (ring.in_flight)
			if (ring_answer(true, &answer) && answer.res != (int)piece)
				failed++;
		if (fdatasync(fd) == 0)
			continue;
		if (errno != EIO)
			die("fdatasync");
		if (!failed_syncs++)
			first = now() - start;
		for (unsigned i = 0; i < depth; i++) /* what the sync calls lost: is it there, past the cache? */
			if (pread(fd, check, piece, at[i]) != (ssize_t)piece || memcmp(check, memory + i * piece, piece))
				wrong++;
	}
	beside.stop = true;
	for (int i = 0; i < others; i++)
		pthread_join(threads[i], NULL);
	printf("syncs %lu\nsyncs_eio %lu\nfirst_eio_s %.2f\n", batches, failed_syncs, first);
	printf("writes_failed %lu\npieces_missing_after_eio %lu\nbuffered_ops %lu\n", failed, wrong,
	       (unsigned long)beside.touched);
}

int main(int count, char **words)
{
	ring_open();
	if (count == 6 && !strcmp(words[1], "move"))
		move(words[2], atoi(words[3]), words[4][0] == 'd', words[5][0] == 'd');
	else if (count == 9 && !strcmp(words[1], "ways"))
		ways(words[2], atoi(words[3]), words[4][0], words[5][0] == 'a', words[6][0] == 'b', words[7][0] == 'n',
		     atof(words[8]));
	else if (count == 8 && !strcmp(words[1], "hazard") && atoi(words[6]) <= SLOTS && atoi(words[7]) <= UNIT >> 10)
		hazard(words[2], atoi(words[3]), words[4], atof(words[5]), atoi(words[6]), atoi(words[7]));
	else
		return fprintf(stderr, "see the head of brick_writes.c\n"), 2;
	return 0;
}
