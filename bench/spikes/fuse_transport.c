/*
 * Spike: what does the way of a request from the kernel to a FUSE server cost?
 *
 * A null file system in RAM speaks the raw FUSE protocol in three ways:
 *   --transport dev --threads N            every thread reads a request from its own clone of /dev/fuse, carries it out
 *                                          and answers it itself ("inline")
 *   --transport dev --threads N --handoff  N threads read and hand every request to ONE thread, which carries it out and
 *                                          answers it ("hand-off")
 *   --transport uring --depth N            FUSE over io_uring: one ring per possible core, N entries each
 * Its client for checks and for the rows of names is fuse_transport_client.c; fuse_transport.sh measures.
 *
 * The directory has the files f0 ... f15 of --size bytes each. Their bytes are a pattern: a window of 64 MiB that
 * repeats, so that they take no memory by their size. What is written goes into a second window, and files that were
 * created read from it. Nothing is ever freed: the server lives for one row of the measurement.
 *
 * Sources: include/uapi/linux/fuse.h, fs/fuse/dev.c and fs/fuse/dev_uring.c of Linux 6.14 to 6.18;
 * Documentation/filesystems/fuse/fuse-io-uring.rst. Build: gcc -O2 -pthread (see fuse_transport.sh).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "null_files.h"

/* From include/uapi/linux/fuse.h of Linux 6.14 (FUSE 7.42); the headers of Debian 12 end at 7.38. */
#ifndef FUSE_OVER_IO_URING
#define FUSE_OVER_IO_URING (1ULL << 41)
#define FUSE_URING_IN_OUT_HEADER_SZ 128
#define FUSE_URING_OP_IN_OUT_SZ 128
struct fuse_uring_ent_in_out {
	uint64_t flags;
	uint64_t commit_id;  /* kernel to server: what COMMIT_AND_FETCH has to name */
	uint32_t payload_sz; /* bytes in the payload buffer, in both directions */
	uint32_t padding;
	uint64_t reserved;
};
struct fuse_uring_req_header {
	char in_out[FUSE_URING_IN_OUT_HEADER_SZ]; /* fuse_in_header, and fuse_out_header in the answer */
	char op_in[FUSE_URING_OP_IN_OUT_SZ];      /* the operation's own header, for example fuse_read_in */
	struct fuse_uring_ent_in_out ring_ent_in_out;
};
enum { FUSE_IO_URING_CMD_REGISTER = 1, FUSE_IO_URING_CMD_COMMIT_AND_FETCH = 2 };
struct fuse_uring_cmd_req { /* in the 80 bytes of command area of a 128-byte SQE */
	uint64_t flags;
	uint64_t commit_id;
	uint16_t qid;
	uint8_t padding[6];
};
#endif

enum {
	MAX_PAGES = MAX_IO / 4096,
	REQUEST_BYTES = MAX_IO + 8192, /* a read(2) of /dev/fuse wants room for the headers and max_write */
	MAX_RINGS = 256,
};

static struct {
	bool uring, handoff, writeback, direct_reply, plain_ring;
	int threads, depth, max_seconds;
	uint64_t size;
	unsigned valid; /* seconds for which the kernel may keep names and attributes */
	const char *mount_point;
} options = {.threads = 4, .depth = 16, .max_seconds = 120, .size = 2ULL << 30, .valid = 1};

static int fuse_fd;
static char abort_path[64];

static void die(const char *format, ...)
{
	int code = errno;
	va_list arguments;
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, ": %s\n", strerror(code));
	/* The mount must not stay behind: callers of it would hang. */
	if (abort_path[0]) {
		int fd = open(abort_path, O_WRONLY);
		if (fd >= 0 && write(fd, "1", 1) < 0)
			fprintf(stderr, "cannot abort the connection\n");
	}
	if (options.mount_point)
		umount2(options.mount_point, MNT_DETACH);
	_exit(1);
}

static void *memory(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (at == MAP_FAILED)
		die("mmap of %zu bytes", bytes);
	return at;
}

/* ---------------------------------------------------------------- /dev/fuse */

/* Reads one request. Returns its bytes, or 0 when the mount is gone. */
static size_t take(int fd, uint8_t *buffer)
{
	for (;;) {
		ssize_t bytes = read(fd, buffer, REQUEST_BYTES);
		if (bytes > 0)
			return bytes;
		if (bytes == 0 || errno == ENODEV || errno == ECONNABORTED)
			return 0;
		if (errno != EINTR && errno != EAGAIN && errno != ENOENT) /* ENOENT: interrupted while it was queued */
			die("read of /dev/fuse");
	}
}

static void put(int fd, uint64_t unique, const struct answer *answer, uint8_t *out)
{
	struct fuse_out_header header = {.error = answer->error, .unique = unique};
	struct iovec pieces[3] = {{&header, sizeof header}, {out, answer->bytes}};
	int count = answer->error || !answer->bytes ? 1 : 2;
	if (answer->is_direct && count == 2) {
		pieces[1] = answer->direct[0];
		pieces[2] = answer->direct[1];
		count = 3;
	}
	for (int i = 0; i < count; i++)
		header.len += pieces[i].iov_len;
	/* ENOENT: the request was interrupted and its caller is gone. */
	if (writev(fd, pieces, count) < 0 && errno != ENOENT && errno != ENODEV && errno != ECONNABORTED)
		die("write to /dev/fuse (unique %llu, %u bytes)", (unsigned long long)unique, header.len);
}

static void serve_one(int fd, uint8_t *buffer, uint8_t *out)
{
	struct fuse_in_header *in = (struct fuse_in_header *)buffer;
	uint8_t *head = buffer + sizeof *in;
	struct answer answer;
	if (null_files_carry_out(in, head, head + null_files_header_bytes(in->opcode), out, &answer))
		put(fd, in->unique, &answer, out);
}

/* A descriptor of the same connection with its own list of requests under way. */
static int clone_fd(void)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	uint32_t source = fuse_fd;
	if (fd < 0 || ioctl(fd, FUSE_DEV_IOC_CLONE, &source) < 0)
		die("clone of /dev/fuse");
	return fd;
}

static void *inline_thread(void *unused)
{
	int fd = clone_fd();
	uint8_t *buffer = memory(REQUEST_BYTES), *out = memory(MAX_IO);
	while (take(fd, buffer))
		serve_one(fd, buffer, out);
	return unused;
}

/* ---------------------------------------------------------------- the hand-off */

struct handed {
	struct handed *next;
	int fd; /* the clone that it was read from, and that has to take the answer */
	uint8_t *buffer;
};
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_room = PTHREAD_COND_INITIALIZER;
static struct handed *queue_head, **queue_tail = &queue_head, *free_head;
static atomic_bool runtime_sleeps, runtime_ends;
static int wake_fd;

static void wake_runtime(void)
{
	uint64_t one = 1;
	if (atomic_exchange(&runtime_sleeps, false) && write(wake_fd, &one, sizeof one) < 0)
		die("write to the eventfd");
}

static void *reader_thread(void *unused)
{
	int fd = clone_fd();
	for (;;) {
		pthread_mutex_lock(&queue_lock);
		while (!free_head)
			pthread_cond_wait(&queue_room, &queue_lock);
		struct handed *item = free_head;
		free_head = item->next;
		pthread_mutex_unlock(&queue_lock);

		if (!take(fd, item->buffer))
			return unused;
		item->fd = fd;
		item->next = NULL;
		pthread_mutex_lock(&queue_lock);
		*queue_tail = item;
		queue_tail = &item->next;
		pthread_mutex_unlock(&queue_lock);
		wake_runtime();
	}
}

static void *runtime_thread(void *unused)
{
	uint8_t *out = memory(MAX_IO);
	for (;;) {
		pthread_mutex_lock(&queue_lock);
		struct handed *item = queue_head;
		queue_head = NULL;
		queue_tail = &queue_head;
		/* Under the lock: whoever adds one after it sees that this thread is about to sleep. */
		if (!item)
			atomic_store(&runtime_sleeps, true);
		pthread_mutex_unlock(&queue_lock);
		if (!item) {
			uint64_t ignored;
			if (atomic_load(&runtime_ends))
				return unused;
			if (read(wake_fd, &ignored, sizeof ignored) < 0 && errno != EINTR)
				die("read of the eventfd");
		}
		while (item) {
			struct handed *next = item->next;
			serve_one(item->fd, item->buffer, out);
			pthread_mutex_lock(&queue_lock);
			item->next = free_head;
			free_head = item;
			pthread_cond_signal(&queue_room);
			pthread_mutex_unlock(&queue_lock);
			item = next;
		}
	}
}

/* ---------------------------------------------------------------- FUSE over io_uring */

struct ring_entry {
	struct fuse_uring_req_header *header;
	uint8_t *payload, *request; /* `request`: a copy of names, which the answer would overwrite */
	struct iovec pieces[2];     /* the header and the payload, as REGISTER wants them */
};
struct ring {
	int fd, enter_fd, qid;
	unsigned enter_flags, sq_mask, cq_mask;
	_Atomic unsigned *sq_tail, *cq_head, *cq_tail;
	unsigned *sq_array;
	uint8_t *sqes; /* 128 bytes each */
	struct io_uring_cqe *cqes;
	struct ring_entry *entries;
	uint64_t served;
};
static struct ring rings[MAX_RINGS];
static pthread_barrier_t rings_ready;

static void ring_open(struct ring *ring)
{
	struct io_uring_params params = {.flags = IORING_SETUP_SQE128 | IORING_SETUP_CQSIZE};
	params.cq_entries = 2 * options.depth;
	if (!options.plain_ring)
		params.flags |= IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN;
	ring->fd = ring->enter_fd = syscall(SYS_io_uring_setup, options.depth, &params);
	if (ring->fd < 0)
		die("io_uring_setup");
	size_t sq = params.sq_off.array + params.sq_entries * sizeof(unsigned);
	size_t cq = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
	int shared = MAP_SHARED | MAP_POPULATE, both = PROT_READ | PROT_WRITE;
	uint8_t *shared_rings = mmap(NULL, sq > cq ? sq : cq, both, shared, ring->fd, IORING_OFF_SQ_RING);
	ring->sqes = mmap(NULL, params.sq_entries * 128, both, shared, ring->fd, IORING_OFF_SQES);
	if (shared_rings == MAP_FAILED || ring->sqes == MAP_FAILED || !(params.features & IORING_FEAT_SINGLE_MMAP))
		die("mmap of the ring");
	ring->sq_tail = (void *)(shared_rings + params.sq_off.tail);
	ring->sq_mask = *(unsigned *)(shared_rings + params.sq_off.ring_mask);
	ring->sq_array = (void *)(shared_rings + params.sq_off.array);
	ring->cq_head = (void *)(shared_rings + params.cq_off.head);
	ring->cq_tail = (void *)(shared_rings + params.cq_off.tail);
	ring->cq_mask = *(unsigned *)(shared_rings + params.cq_off.ring_mask);
	ring->cqes = (void *)(shared_rings + params.cq_off.cqes);
	if (syscall(SYS_io_uring_register, ring->fd, IORING_REGISTER_FILES, &fuse_fd, 1) < 0)
		die("IORING_REGISTER_FILES");
	struct io_uring_rsrc_update update = {.offset = -1U, .data = ring->fd};
	if (syscall(SYS_io_uring_register, ring->fd, IORING_REGISTER_RING_FDS, &update, 1) == 1) {
		ring->enter_fd = update.offset;
		ring->enter_flags = IORING_ENTER_REGISTERED_RING;
	}
}

/* Appends one command for the entry; io_uring_enter hands it over. */
static void ring_push(struct ring *ring, int index, uint32_t command, uint64_t commit_id)
{
	unsigned tail = atomic_load_explicit(ring->sq_tail, memory_order_relaxed);
	struct io_uring_sqe *sqe = (void *)(ring->sqes + (tail & ring->sq_mask) * 128);
	memset(sqe, 0, 128);
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->flags = IOSQE_FIXED_FILE;
	sqe->fd = 0; /* the place of fuse_fd among the ring's files */
	sqe->cmd_op = command;
	sqe->user_data = index;
	if (command == FUSE_IO_URING_CMD_REGISTER) {
		sqe->addr = (uintptr_t)ring->entries[index].pieces;
		sqe->len = 2;
	}
	struct fuse_uring_cmd_req *request = (void *)sqe->cmd;
	request->qid = ring->qid;
	request->commit_id = commit_id;
	ring->sq_array[tail & ring->sq_mask] = tail & ring->sq_mask;
	atomic_store_explicit(ring->sq_tail, tail + 1, memory_order_release);
}

static void ring_enter(struct ring *ring, unsigned submit, unsigned wait)
{
	unsigned flags = ring->enter_flags | IORING_ENTER_GETEVENTS;
	do {
		int done = syscall(SYS_io_uring_enter, ring->enter_fd, submit, wait, flags, NULL, 0);
		if (done >= 0)
			submit -= done;
		else if (errno != EINTR && errno != EAGAIN && errno != EBUSY)
			die("io_uring_enter");
	} while (submit);
}

/* Carries out the request in one entry and pushes its answer. */
static void ring_serve(struct ring *ring, int index)
{
	struct ring_entry *entry = &ring->entries[index];
	struct fuse_uring_ent_in_out *about = &entry->header->ring_ent_in_out;
	struct fuse_in_header in = *(struct fuse_in_header *)entry->header->in_out;
	const uint8_t *payload = entry->payload;
	struct answer answer;
	if (in.opcode != FUSE_WRITE && about->payload_sz) { /* names: the answer goes where they are */
		memcpy(entry->request, payload, about->payload_sz < 4096 ? about->payload_sz : 4096);
		payload = entry->request;
	}
	uint64_t commit_id = about->commit_id;
	null_files_carry_out(&in, entry->header->op_in, payload, entry->payload, &answer);
	*(struct fuse_out_header *)entry->header->in_out = (struct fuse_out_header){
		.len = sizeof(struct fuse_out_header) + answer.bytes, .error = answer.error, .unique = in.unique};
	about->payload_sz = answer.bytes;
	ring_push(ring, index, FUSE_IO_URING_CMD_COMMIT_AND_FETCH, commit_id);
}

static void *ring_thread(void *argument)
{
	struct ring *ring = argument;
	cpu_set_t core;
	CPU_ZERO(&core);
	CPU_SET(ring->qid, &core);
	/* The kernel gives a request to the queue of the core that its caller runs on. A possible core that is not online
	 * needs its queue as well, or the kernel never starts to use any; then the thread stays where it is. */
	if (sched_setaffinity(0, sizeof core, &core) < 0)
		fprintf(stderr, "queue %d: not bound to its core\n", ring->qid);
	ring_open(ring);
	ring->entries = calloc(options.depth, sizeof *ring->entries);
	for (int i = 0; i < options.depth; i++) {
		struct ring_entry *entry = &ring->entries[i];
		entry->header = memory(sizeof *entry->header);
		entry->payload = memory(MAX_IO);
		entry->request = memory(4096);
		entry->pieces[0] = (struct iovec){entry->header, sizeof *entry->header};
		entry->pieces[1] = (struct iovec){entry->payload, MAX_IO};
		ring_push(ring, i, FUSE_IO_URING_CMD_REGISTER, 0);
	}
	ring_enter(ring, options.depth, 0);
	pthread_barrier_wait(&rings_ready);
	int alive = options.depth;
	unsigned submit = 0;
	while (alive) {
		ring_enter(ring, submit, 1);
		submit = 0;
		unsigned head = atomic_load_explicit(ring->cq_head, memory_order_relaxed);
		for (; head != atomic_load_explicit(ring->cq_tail, memory_order_acquire); head++) {
			struct io_uring_cqe cqe = ring->cqes[head & ring->cq_mask];
			if (cqe.res < 0) { /* the entry is lost; ENOTCONN and the like: the mount is gone */
				if (cqe.res != -ENOTCONN && cqe.res != -ECONNABORTED && cqe.res != -ECANCELED)
					fprintf(stderr, "queue %d: %s\n", ring->qid, strerror(-cqe.res));
				alive--;
			} else {
				ring_serve(ring, cqe.user_data);
				ring->served++;
				submit++;
			}
		}
		atomic_store_explicit(ring->cq_head, head, memory_order_release);
	}
	return NULL;
}

/* ---------------------------------------------------------------- mount, INIT, the end */

static void answer_init(uint8_t *buffer)
{
	struct fuse_in_header *in = (struct fuse_in_header *)buffer;
	struct fuse_init_in *init = (struct fuse_init_in *)(in + 1);
	struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION};
	if (!take(fuse_fd, buffer) || in->opcode != FUSE_INIT || init->major != FUSE_KERNEL_VERSION)
		die("no FUSE_INIT of major version %d", FUSE_KERNEL_VERSION);
	uint64_t offered = init->flags | (uint64_t)init->flags2 << 32;
	uint64_t wanted = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_PARALLEL_DIROPS | FUSE_INIT_EXT;
	if (options.uring)
		wanted |= FUSE_OVER_IO_URING;
	if (options.writeback)
		wanted |= FUSE_WRITEBACK_CACHE;
	if (wanted & ~offered) {
		errno = EOPNOTSUPP;
		die("the kernel does not offer FUSE flags %#llx%s", (unsigned long long)(wanted & ~offered),
		    options.uring ? " (is /sys/module/fuse/parameters/enable_uring Y?)" : "");
	}
	out.minor = init->minor < 42 ? init->minor : 42;
	out.max_readahead = MAX_IO;
	out.flags = (uint32_t)wanted;
	out.flags2 = wanted >> 32;
	out.max_background = 64;
	out.congestion_threshold = 48;
	out.max_write = MAX_IO;
	out.time_gran = 1;
	out.max_pages = MAX_PAGES;
	struct answer answer = {.bytes = sizeof out};
	put(fuse_fd, in->unique, &answer, (uint8_t *)&out);
	fprintf(stderr, "FUSE %u.%u, offered %#llx, taken %#llx\n", init->major, init->minor, (unsigned long long)offered,
		(unsigned long long)wanted);
}

/* Finds the mount's device in mountinfo, which does not touch the mount, and sets its read-ahead. */
static void find_connection(void)
{
	FILE *mounts = fopen("/proc/self/mountinfo", "r");
	char line[4096], root[1024], point[1024], path[128];
	unsigned major = 0, minor = 0;
	while (mounts && fgets(line, sizeof line, mounts)) {
		unsigned a, b;
		if (sscanf(line, "%*d %*d %u:%u %1023s %1023s", &a, &b, root, point) == 4 &&
		    strcmp(point, options.mount_point) == 0)
			major = a, minor = b;
	}
	if (mounts)
		fclose(mounts);
	errno = ENOENT;
	if (!minor)
		die("the mount is not in /proc/self/mountinfo");
	snprintf(abort_path, sizeof abort_path, "/sys/fs/fuse/connections/%u/abort", minor);
	snprintf(path, sizeof path, "/sys/class/bdi/%u:%u-fuse/read_ahead_kb", major, minor);
	int fd = open(path, O_WRONLY);
	if (fd < 0) {
		snprintf(path, sizeof path, "/sys/class/bdi/%u:%u/read_ahead_kb", major, minor);
		fd = open(path, O_WRONLY);
	}
	if (fd < 0 || write(fd, "1024", 4) != 4)
		die("%s", path);
	close(fd);
	printf("ready connection=%u\n", minor);
	fflush(stdout);
}

/* SIGTERM, SIGINT and the alarm end the server, whatever hangs: abort the connection, let go of the mount. */
static void *signal_thread(void *set)
{
	int signal;
	sigwait(set, &signal);
	errno = EINTR;
	die("signal %d", signal);
	return NULL;
}

static void start(pthread_t *thread, void *(*run)(void *), void *argument)
{
	errno = pthread_create(thread, NULL, run, argument);
	if (errno)
		die("pthread_create");
}

static int serve(void)
{
	static sigset_t signals;
	pthread_t threads[MAX_RINGS], other;
	int count = options.uring ? sysconf(_SC_NPROCESSORS_CONF) : options.threads;
	if (count < 1 || count > MAX_RINGS || options.depth < 1 || options.depth > 1024) {
		errno = EINVAL;
		die("threads, cores or depth");
	}
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	start(&other, signal_thread, &signals);
	alarm(options.max_seconds);

	null_files_make(options.size, options.valid, options.direct_reply, memory);
	char data[128];
	fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	snprintf(data, sizeof data, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions", fuse_fd);
	if (fuse_fd < 0 || mount("null", options.mount_point, "fuse.null", MS_NOSUID | MS_NODEV | MS_NOATIME, data) < 0) {
		fprintf(stderr, "mount at %s: %s\n", options.mount_point, strerror(errno));
		return 1; /* not by die(): what is mounted there is not ours */
	}
	uint8_t *buffer = memory(REQUEST_BYTES), *out = memory(MAX_IO);
	answer_init(buffer);
	if (options.uring) {
		pthread_barrier_init(&rings_ready, NULL, count + 1);
		for (int i = 0; i < count; i++) {
			rings[i].qid = i;
			start(&threads[i], ring_thread, &rings[i]);
		}
		pthread_barrier_wait(&rings_ready);
	} else if (options.handoff) {
		wake_fd = eventfd(0, EFD_CLOEXEC);
		for (int i = 0; i < options.threads + 32; i++) {
			struct handed *item = calloc(1, sizeof *item);
			item->buffer = memory(REQUEST_BYTES);
			item->next = free_head;
			free_head = item;
		}
		start(&other, runtime_thread, NULL);
		for (int i = 0; i < count; i++)
			start(&threads[i], reader_thread, NULL);
	} else {
		for (int i = 0; i < count; i++)
			start(&threads[i], inline_thread, NULL);
	}
	find_connection();
	/* With io_uring FORGET and INTERRUPT still come this way, and everything until the rings are ready. */
	if (options.uring)
		while (take(fuse_fd, buffer))
			serve_one(fuse_fd, buffer, out);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	if (options.handoff) {
		atomic_store(&runtime_ends, true);
		wake_runtime();
		pthread_join(other, NULL);
	}
	null_files_print();
	for (int i = 0; options.uring && i < count; i++)
		printf("queue %d: %llu requests\n", i, (unsigned long long)rings[i].served);
	return 0;
}

int main(int count, char **words)
{
	for (int i = 1; i < count; i++) {
		const char *word = words[i], *value = i + 1 < count ? words[i + 1] : "";
		if (strcmp(word, "--handoff") == 0)
			options.handoff = true;
		else if (strcmp(word, "--writeback") == 0)
			options.writeback = true;
		else if (strcmp(word, "--direct-reply") == 0)
			options.direct_reply = true;
		else if (strcmp(word, "--plain-ring") == 0)
			options.plain_ring = true;
		else if (word[0] != '-' && !options.mount_point)
			options.mount_point = word;
		else if (strcmp(word, "--transport") == 0 && (!strcmp(value, "dev") || !strcmp(value, "uring")) && ++i)
			options.uring = !strcmp(value, "uring");
		else if (strcmp(word, "--threads") == 0 && ++i)
			options.threads = atoi(value);
		else if (strcmp(word, "--depth") == 0 && ++i)
			options.depth = atoi(value);
		else if (strcmp(word, "--max-seconds") == 0 && ++i)
			options.max_seconds = atoi(value);
		else if (strcmp(word, "--size") == 0 && ++i)
			options.size = strtoull(value, NULL, 10);
		else if (strcmp(word, "--valid") == 0 && ++i)
			options.valid = atoi(value);
		else
			options.max_seconds = 0;
	}
	if (!options.mount_point || options.max_seconds < 1 || (options.uring && (options.handoff || options.direct_reply))) {
		fprintf(stderr, "fuse_transport --transport dev|uring [--threads N] [--handoff] [--direct-reply] [--depth N]\n"
				"  [--plain-ring] [--writeback] [--size BYTES] [--valid SECONDS] [--max-seconds S] MOUNT_POINT\n");
		return 2;
	}
	return serve();
}
