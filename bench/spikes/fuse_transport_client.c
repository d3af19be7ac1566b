/*
 * The client's side of the spike fuse_transport.c; it works on any directory of a mount of it.
 *   --check DIR                     compares what the mount returns with what it must return
 *   --loop DIR COUNT SERVER_PID     creates, stats and unlinks COUNT empty files; prints for each phase
 *                                   "phase ops/s MiB/s mean-us machine-us/op own-us/op" ("own": this process and the server)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "null_files.h"

static void die(const char *format, ...)
{
	int code = errno;
	va_list arguments;
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, ": %s\n", strerror(code));
	exit(1);
}

static int check(const char *directory)
{
	enum { BYTES = 1 << 20 };
	static uint64_t got[BYTES / 8], sent[BYTES / 8];
	char path[4096];
	uint64_t state = 88172645463325252ULL;
	for (int round = 0; round < 200; round++) {
		state ^= state << 13, state ^= state >> 7, state ^= state << 17;
		snprintf(path, sizeof path, "%s/f%d", directory, round % PRESET_FILES);
		int fd = open(path, O_RDONLY);
		struct stat stat;
		if (fd < 0 || fstat(fd, &stat) < 0)
			die("%s", path);
		/* In every fourth round across the end of the window, in every seventh across the end of the file. */
		uint64_t at = state % (stat.st_size - BYTES) & ~7ULL, want = round % 3 ? 4096 : BYTES;
		if (round % 4 == 0)
			at = WINDOW - want / 2;
		if (round % 7 == 0)
			at = stat.st_size - want / 2;
		ssize_t bytes = pread(fd, got, want, at);
		uint64_t expected = at + want > (uint64_t)stat.st_size ? stat.st_size - at : want;
		if (bytes < 0 || (uint64_t)bytes != expected)
			die("%s: %zd bytes at %llu instead of %llu", path, bytes, (unsigned long long)at,
			    (unsigned long long)expected);
		for (uint64_t i = 0; i < expected / 8; i++)
			if (got[i] != (at + i * 8) % WINDOW / 8 * PATTERN_STEP)
				die("%s: wrong byte at %llu", path, (unsigned long long)(at + i * 8));
		close(fd);
	}
	snprintf(path, sizeof path, "%s/check", directory);
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	for (int round = 0; round < 40; round++) {
		for (uint64_t i = 0; i < BYTES / 8; i++)
			sent[i] = state + round * i;
		if (fd < 0 || pwrite(fd, sent, BYTES, (off_t)round * BYTES + 8) != BYTES || fdatasync(fd) < 0)
			die("write of %s", path);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		if (pread(fd, got, BYTES, (off_t)round * BYTES + 8) != BYTES || memcmp(got, sent, BYTES) != 0)
			die("%s: it does not read back", path);
	}
	struct stat stat_out;
	if (fstat(fd, &stat_out) < 0 || stat_out.st_size != 40LL * BYTES + 8)
		die("%s: wrong size", path);
	close(fd);
	if (open(path, O_CREAT | O_EXCL, 0600) >= 0 || errno != EEXIST || unlink(path) < 0 || stat(path, &stat_out) == 0 ||
	    errno != ENOENT)
		die("%s: create and unlink", path);
	printf("check: ok\n");
	return 0;
}

static double now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec + at.tv_nsec / 1e9;
}

/* Processor seconds of the whole machine without idle, waiting and stolen time; 10 ms fine. */
static double machine_seconds(void)
{
	unsigned long long user = 0, nice = 0, system = 0, irq = 0, softirq = 0;
	FILE *stat = fopen("/proc/stat", "r");
	if (!stat || fscanf(stat, "cpu %llu %llu %llu %*u %*u %llu %llu", &user, &nice, &system, &irq, &softirq) != 5)
		die("/proc/stat");
	fclose(stat);
	return (double)(user + nice + system + irq + softirq) / sysconf(_SC_CLK_TCK);
}

/* Processor seconds of this process and of the server. */
static double both_seconds(int server)
{
	char path[64];
	unsigned long long user = 0, system = 0;
	struct rusage usage;
	snprintf(path, sizeof path, "/proc/%d/stat", server);
	FILE *stat = fopen(path, "r");
	if (!stat || fscanf(stat, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) != 2)
		die("%s", path);
	fclose(stat);
	getrusage(RUSAGE_SELF, &usage);
	return (double)(user + system) / sysconf(_SC_CLK_TCK) + usage.ru_utime.tv_sec + usage.ru_utime.tv_usec / 1e6 +
	       usage.ru_stime.tv_sec + usage.ru_stime.tv_usec / 1e6;
}

static int loop(const char *directory, int count, int server)
{
	static const char *const phases[] = {"create", "stat", "unlink"};
	char path[4096];
	for (int phase = 0; phase < 3; phase++) {
		double begin = now(), machine = machine_seconds(), both = both_seconds(server);
		for (int i = 0; i < count; i++) {
			struct stat ignored;
			snprintf(path, sizeof path, "%s/e%d", directory, i);
			int result = phase == 0	  ? open(path, O_CREAT | O_EXCL | O_WRONLY, 0600)
				     : phase == 1 ? stat(path, &ignored)
						  : unlink(path);
			if (result < 0)
				die("%s %s", phases[phase], path);
			if (phase == 0)
				close(result);
		}
		double seconds = now() - begin;
		printf("%s %.1f 0 %.2f %.2f %.2f\n", phases[phase], count / seconds, seconds / count * 1e6,
		       (machine_seconds() - machine) / count * 1e6, (both_seconds(server) - both) / count * 1e6);
	}
	return 0;
}

int main(int count, char **words)
{
	if (count == 3 && strcmp(words[1], "--check") == 0)
		return check(words[2]);
	if (count == 5 && strcmp(words[1], "--loop") == 0)
		return loop(words[2], atoi(words[3]), atoi(words[4]));
	fprintf(stderr, "fuse_transport_client --check DIR | --loop DIR COUNT SERVER_PID\n");
	return 2;
}
