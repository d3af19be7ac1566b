/* The null file system of the spike fuse_transport.c: its sizes, and its one door. */
#ifndef NULL_FILES_H
#define NULL_FILES_H
#include <linux/fuse.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

enum {
	MAX_IO = 1 << 20,    /* bytes of one READ or WRITE: max_write, and max_pages of 4 KiB */
	WINDOW = 64 << 20,   /* bytes of the pattern and of the memory that takes writes */
	PRESET_FILES = 16,   /* f0 ... f15 */
	MAX_OPCODE = 64,
};
#define PATTERN_STEP 0x9E3779B97F4A7C15ULL /* word i of the pattern is i * PATTERN_STEP */

/* An answer: `error` (0 or negative), and either `bytes` of the caller's buffer or two pieces of the server's memory. */
struct answer {
	int error;
	uint32_t bytes;
	struct iovec direct[2];
	bool is_direct;
};

/* Makes the files. `valid`: seconds for which the kernel may keep names and attributes; `direct`: READ answers with
 * pieces of the pattern itself instead of a copy. `memory` returns zeroed memory or does not return. */
void null_files_make(uint64_t size, unsigned valid, bool direct, void *(*memory)(size_t));

/* Bytes of the operation's own header, which precedes names and data. */
size_t null_files_header_bytes(uint32_t opcode);

/* Carries out one request; any thread may call it. `head` is the operation's own header, `payload` what follows it,
 * `out` takes up to MAX_IO bytes of the answer. Returns false if the kernel waits for no answer. */
bool null_files_carry_out(const struct fuse_in_header *in, const void *head, const void *payload, uint8_t *out,
			  struct answer *answer);

/* Prints how many requests of each kind there were. */
void null_files_print(void);
#endif
