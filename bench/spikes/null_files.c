/* The null file system of the spike fuse_transport.c; see null_files.h. */
#include "null_files.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
	SLOTS = 1 << 18, /* most files ever created in one mount; twice as many places in the hash table */
	FIRST_NODE = 2,  /* node 1 is the root */
};

static uint8_t *pattern, *written;
static unsigned valid_seconds;
static bool direct_reply;
static _Atomic uint64_t counts[MAX_OPCODE];

struct file {
	char name[32];
	uint64_t size;
	uint8_t *window;
	uint32_t links;
};
static struct file *files; /* by node - FIRST_NODE; never reused */
static uint32_t file_count;
static uint32_t *names; /* open addressing: 0 = free, 1 = removed, else the node */
static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t *slot_of(const char *name)
{
	uint64_t hash = 14695981039346656037ULL;
	for (const char *c = name; *c; c++)
		hash = (hash ^ (uint8_t)*c) * 1099511628211ULL;
	uint32_t *removed = NULL;
	for (uint32_t i = (hash ^ hash >> 32) % (2 * SLOTS);; i = (i + 1) % (2 * SLOTS)) {
		uint32_t node = names[i];
		if (node == 0)
			return removed ? removed : &names[i];
		if (node == 1)
			removed = removed ? removed : &names[i];
		else if (strcmp(files[node - FIRST_NODE].name, name) == 0)
			return &names[i];
	}
}

/* Returns the node, or 0 if there is no such name. */
static uint32_t look_up(const char *name)
{
	pthread_mutex_lock(&names_lock);
	uint32_t node = *slot_of(name);
	pthread_mutex_unlock(&names_lock);
	return node >= FIRST_NODE ? node : 0;
}

/* Returns the new node, or a negative errno. */
static int64_t create(const char *name, uint64_t size, uint8_t *window)
{
	int64_t node = -ENAMETOOLONG;
	pthread_mutex_lock(&names_lock);
	if (strlen(name) < sizeof files->name) {
		uint32_t *slot = slot_of(name);
		if (*slot >= FIRST_NODE) {
			node = -EEXIST;
		} else if (file_count == SLOTS) {
			node = -ENOSPC;
		} else {
			struct file *file = &files[file_count];
			strcpy(file->name, name);
			file->size = size;
			file->window = window;
			file->links = 1;
			node = FIRST_NODE + file_count++;
			*slot = node;
		}
	}
	pthread_mutex_unlock(&names_lock);
	return node;
}

static int remove_name(const char *name)
{
	int error = -ENOENT;
	pthread_mutex_lock(&names_lock);
	uint32_t *slot = slot_of(name);
	if (*slot >= FIRST_NODE) {
		files[*slot - FIRST_NODE].links = 0;
		*slot = 1;
		error = 0;
	}
	pthread_mutex_unlock(&names_lock);
	return error;
}

static struct file *file_at(uint64_t node)
{
	return node >= FIRST_NODE && node < FIRST_NODE + file_count ? &files[node - FIRST_NODE] : NULL;
}

static void attributes(uint64_t node, struct fuse_attr *attr)
{
	struct file *file = file_at(node);
	memset(attr, 0, sizeof *attr);
	attr->ino = node;
	attr->mode = file ? S_IFREG | 0644 : S_IFDIR | 0755;
	attr->nlink = file ? file->links : 2;
	attr->size = file ? file->size : 4096;
	attr->blocks = (attr->size + 511) / 512;
	attr->blksize = 4096;
}

static void entry(uint64_t node, struct fuse_entry_out *out)
{
	memset(out, 0, sizeof *out);
	out->nodeid = node;
	out->entry_valid = out->attr_valid = valid_seconds;
	attributes(node, &out->attr);
}

static void read_file(const struct file *file, const struct fuse_read_in *in, uint8_t *out, struct answer *answer)
{
	uint64_t left = in->offset < file->size ? file->size - in->offset : 0;
	uint32_t bytes = in->size < left ? in->size : left;
	uint64_t at = in->offset % WINDOW;
	uint32_t first = bytes < WINDOW - at ? bytes : WINDOW - at;
	answer->bytes = bytes;
	if (direct_reply) {
		answer->is_direct = true;
		answer->direct[0] = (struct iovec){file->window + at, first};
		answer->direct[1] = (struct iovec){file->window, bytes - first};
	} else {
		memcpy(out, file->window + at, first);
		memcpy(out + first, file->window, bytes - first);
	}
}

static void write_file(struct file *file, const struct fuse_write_in *in, const uint8_t *data)
{
	uint64_t at = in->offset % WINDOW;
	uint32_t first = in->size < WINDOW - at ? in->size : WINDOW - at;
	memcpy(written + at, data, first);
	memcpy(written, data + first, in->size - first);
	if (in->offset + in->size > file->size)
		file->size = in->offset + in->size;
}

size_t null_files_header_bytes(uint32_t opcode)
{
	switch (opcode) {
	case FUSE_GETATTR: return sizeof(struct fuse_getattr_in);
	case FUSE_SETATTR: return sizeof(struct fuse_setattr_in);
	case FUSE_MKNOD: return sizeof(struct fuse_mknod_in);
	case FUSE_CREATE: return sizeof(struct fuse_create_in);
	case FUSE_OPEN: case FUSE_OPENDIR: return sizeof(struct fuse_open_in);
	case FUSE_READ: case FUSE_READDIR: return sizeof(struct fuse_read_in);
	case FUSE_WRITE: return sizeof(struct fuse_write_in);
	default: return 0;
	}
}

bool null_files_carry_out(const struct fuse_in_header *in, const void *head, const void *payload, uint8_t *out,
			  struct answer *answer)
{
	struct file *file = file_at(in->nodeid);
	*answer = (struct answer){0};
	atomic_fetch_add_explicit(&counts[in->opcode % MAX_OPCODE], 1, memory_order_relaxed);
	switch (in->opcode) {
	case FUSE_FORGET: case FUSE_BATCH_FORGET: case FUSE_INTERRUPT:
		return false;
	case FUSE_LOOKUP: {
		uint32_t node = look_up(payload);
		if (!node) {
			answer->error = -ENOENT;
			break;
		}
		entry(node, (struct fuse_entry_out *)out);
		answer->bytes = sizeof(struct fuse_entry_out);
		break;
	}
	case FUSE_GETATTR: case FUSE_SETATTR: {
		const struct fuse_setattr_in *set = head;
		struct fuse_attr_out *attr = (struct fuse_attr_out *)out;
		if (in->opcode == FUSE_SETATTR && file && set->valid & FATTR_SIZE)
			file->size = set->size;
		memset(attr, 0, sizeof *attr);
		attr->attr_valid = valid_seconds;
		attributes(in->nodeid, &attr->attr);
		answer->bytes = sizeof *attr;
		break;
	}
	case FUSE_CREATE: case FUSE_MKNOD: {
		int64_t node = create(payload, 0, written);
		if (node < 0) {
			answer->error = (int)node;
			break;
		}
		entry((uint64_t)node, (struct fuse_entry_out *)out);
		answer->bytes = sizeof(struct fuse_entry_out);
		if (in->opcode == FUSE_CREATE) {
			memset(out + answer->bytes, 0, sizeof(struct fuse_open_out));
			answer->bytes += sizeof(struct fuse_open_out);
		}
		break;
	}
	case FUSE_UNLINK:
		answer->error = remove_name(payload);
		break;
	case FUSE_OPEN: case FUSE_OPENDIR:
		memset(out, 0, sizeof(struct fuse_open_out));
		answer->bytes = sizeof(struct fuse_open_out);
		break;
	case FUSE_READ:
		if (file)
			read_file(file, head, out, answer);
		else
			answer->error = -EISDIR;
		break;
	case FUSE_WRITE: {
		struct fuse_write_out *result = (struct fuse_write_out *)out;
		if (!file) {
			answer->error = -EISDIR;
			break;
		}
		write_file(file, head, payload);
		*result = (struct fuse_write_out){.size = ((const struct fuse_write_in *)head)->size};
		answer->bytes = sizeof *result;
		break;
	}
	case FUSE_STATFS: {
		struct fuse_statfs_out *result = (struct fuse_statfs_out *)out;
		memset(result, 0, sizeof *result);
		result->st = (struct fuse_kstatfs){.blocks = 1 << 28, .bfree = 1 << 28, .bavail = 1 << 28, .files = SLOTS,
						   .ffree = SLOTS, .bsize = 4096, .namelen = 31, .frsize = 4096};
		answer->bytes = sizeof *result;
		break;
	}
	case FUSE_READDIR: /* the directory lists nothing: no row reads it */
	case FUSE_RELEASE: case FUSE_RELEASEDIR: case FUSE_FSYNC: case FUSE_DESTROY:
		break;
	default: /* FLUSH, GETXATTR, ACCESS and others: the kernel does not ask again */
		answer->error = -ENOSYS;
	}
	return true;
}

void null_files_make(uint64_t size, unsigned valid, bool direct, void *(*memory)(size_t))
{
	valid_seconds = valid;
	direct_reply = direct;
	pattern = memory(WINDOW);
	written = memory(WINDOW);
	for (uint64_t i = 0; i < WINDOW / 8; i++)
		((uint64_t *)pattern)[i] = i * PATTERN_STEP;
	files = memory(SLOTS * sizeof *files);
	names = memory(2 * SLOTS * sizeof *names);
	for (int i = 0; i < PRESET_FILES; i++) {
		char name[8];
		snprintf(name, sizeof name, "f%d", i);
		create(name, size, pattern);
	}
}

void null_files_print(void)
{
	static const char *const op_names[MAX_OPCODE] = {
		[FUSE_LOOKUP] = "lookup", [FUSE_FORGET] = "forget", [FUSE_GETATTR] = "getattr", [FUSE_SETATTR] = "setattr",
		[FUSE_UNLINK] = "unlink", [FUSE_OPEN] = "open", [FUSE_READ] = "read", [FUSE_WRITE] = "write",
		[FUSE_RELEASE] = "release", [FUSE_FLUSH] = "flush", [FUSE_CREATE] = "create",
		[FUSE_BATCH_FORGET] = "batch_forget", [FUSE_INTERRUPT] = "interrupt", [FUSE_GETXATTR] = "getxattr"};
	printf("requests:");
	for (int i = 0; i < MAX_OPCODE; i++)
		if (counts[i] && op_names[i])
			printf(" %s=%llu", op_names[i], (unsigned long long)counts[i]);
		else if (counts[i])
			printf(" op%d=%llu", i, (unsigned long long)counts[i]);
	printf("\n");
}
