/* For LD_PRELOAD below MooseFS, whose servers refuse to be at a loopback address.
 *
 * Its daemons are told that the machine is 198.18.0.1, an address kept free for measurements. This library turns that
 * address into 127.0.0.1 where a socket is bound or connected, and back where the peer of a socket is asked for. So
 * everything stays on the interface lo.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static const in_addr_t pretended = 0xC6120001; /* 198.18.0.1 */

/* Copies `given` to `real` with the loopback address in it; 0 if there is nothing to replace. */
static int replaced(const struct sockaddr *given, socklen_t length, struct sockaddr_in *real) {
    if (!given || length < sizeof *real || given->sa_family != AF_INET) return 0;
    memcpy(real, given, sizeof *real);
    if (ntohl(real->sin_addr.s_addr) != pretended) return 0;
    real->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return 1;
}

typedef int with_address(int, const struct sockaddr *, socklen_t);

int bind(int handle, const struct sockaddr *address, socklen_t length) {
    struct sockaddr_in real;
    with_address *next = (with_address *)dlsym(RTLD_NEXT, "bind");
    return replaced(address, length, &real) ? next(handle, (struct sockaddr *)&real, sizeof real)
                                            : next(handle, address, length);
}

int connect(int handle, const struct sockaddr *address, socklen_t length) {
    struct sockaddr_in real;
    with_address *next = (with_address *)dlsym(RTLD_NEXT, "connect");
    return replaced(address, length, &real) ? next(handle, (struct sockaddr *)&real, sizeof real)
                                            : next(handle, address, length);
}

int getpeername(int handle, struct sockaddr *address, socklen_t *length) {
    int (*next)(int, struct sockaddr *, socklen_t *) =
        (int (*)(int, struct sockaddr *, socklen_t *))dlsym(RTLD_NEXT, "getpeername");
    int result = next(handle, address, length);
    struct sockaddr_in *peer = (struct sockaddr_in *)address;
    if (result == 0 && peer->sin_family == AF_INET && ntohl(peer->sin_addr.s_addr) >> 24 == 127)
        peer->sin_addr.s_addr = htonl(pretended);
    return result;
}
