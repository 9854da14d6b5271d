/* A very cheap HTTP upstream in the shape of Triton's: one thread, one epoll, any number of ports.
 *
 *     http_upstream PORT…
 *
 * It answers every request with 200, and the request says with what:
 *
 *   /v2/models/M[/versions/V]/infer    a small JSON answer that names version V (1 without a number),
 *                                      with an id, which KServe's client insists on
 *   /v2/models/echo/…/infer            the request's own body, with its Inference-Header-Content-Length
 *   field `answer-bytes: N`            N bytes of a pattern (byte i is (i mod 251)), never held in memory
 *
 * An answer to a request with the field `check-body: 1` carries the Adler-32 of the body in the field
 * `body-adler`. Bodies come with a Content-Length or chunked, and are dropped as they are read. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD_MAX = 16384, CONNECTIONS = 16384, READ = 1 << 18, CYCLE = 251, PATTERN = CYCLE * 4096 };
enum phase { HEAD, BODY, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER, ANSWER };

struct connection {
    enum phase phase;
    char head[HEAD_MAX + 1];
    char line[128]; /* of a chunk's size, or of a trailer */
    int line_length, head_length;
    long long left; /* of the body or of the chunk */
    int echo, check, version;
    uint32_t low, high; /* Adler-32 */
    char *kept;         /* of an echo: the body */
    size_t kept_length, kept_room;
    char answer[512];
    size_t answer_length, sent;
    long long pattern_length; /* of the answer's body, when it is the pattern */
    uint32_t events;          /* that are waited for */
};

static struct connection *connections[CONNECTIONS];
static char input[READ], pattern[PATTERN];
static int poller;

static int watch(int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (connections[fd]->events != events)
        epoll_ctl(poller, EPOLL_CTL_MOD, fd, &event);
    connections[fd]->events = events;
    return 0;
}

static int leave(int fd)
{
    close(fd);
    free(connections[fd]->kept);
    free(connections[fd]);
    connections[fd] = NULL;
    return -1;
}

static void check(struct connection *c, const unsigned char *bytes, size_t length)
{
    while (length > 0) { /* 5552: the most steps before the sums must be reduced (RFC 1950, zlib) */
        size_t step = length < 5552 ? length : 5552;
        length -= step;
        while (step-- > 0) {
            c->low += *bytes++;
            c->high += c->low;
        }
        c->low %= 65521;
        c->high %= 65521;
    }
}

static void take(struct connection *c, const char *bytes, size_t length)
{
    if (c->check)
        check(c, (const unsigned char *)bytes, length);
    if (!c->echo)
        return;
    if (c->kept_length + length > c->kept_room) {
        c->kept_room = (c->kept_length + length) * 2;
        c->kept = realloc(c->kept, c->kept_room);
    }
    memcpy(c->kept + c->kept_length, bytes, length);
    c->kept_length += length;
}

static const char *field(const char *head, const char *name)
{
    const char *found = strcasestr(head, name);
    return found ? found + strlen(name) : NULL;
}

/* Write what is ready. 1: all gone, 0: the socket is full, -1: the connection has ended. */
static int write_answer(int fd)
{
    struct connection *c = connections[fd];
    const size_t total = c->answer_length + (c->echo ? c->kept_length : (size_t)c->pattern_length);
    while (c->sent < total) {
        const char *from = c->answer + c->sent;
        size_t length = c->answer_length - c->sent;
        if (c->sent >= c->answer_length && c->echo) {
            from = c->kept + (c->sent - c->answer_length);
            length = total - c->sent;
        } else if (c->sent >= c->answer_length) {
            size_t offset = (c->sent - c->answer_length) % PATTERN;
            from = pattern + offset;
            length = total - c->sent < PATTERN - offset ? total - c->sent : PATTERN - offset;
        }
        ssize_t gone = send(fd, from, length, MSG_NOSIGNAL);
        if (gone < 0 && errno == EAGAIN)
            return watch(fd, EPOLLIN | EPOLLOUT);
        if (gone < 0)
            return leave(fd);
        c->sent += gone;
    }
    watch(fd, EPOLLIN);
    c->phase = HEAD;
    c->kept_length = 0;
    return 1;
}

static int begin_answer(int fd)
{
    struct connection *c = connections[fd];
    const char *asked = field(c->head, "\r\nanswer-bytes:");
    const char *json_length = field(c->head, "\r\ninference-header-content-length:");
    char extra[128] = "", body[256] = "";
    c->pattern_length = asked != NULL ? atoll(asked) : 0;
    long long length = c->echo ? (long long)c->kept_length : c->pattern_length;
    if (c->check)
        sprintf(extra, "body-adler: %08x\r\n", c->high << 16 | c->low);
    if (c->echo && json_length != NULL)
        sprintf(extra + strlen(extra), "Inference-Header-Content-Length: %lld\r\n", atoll(json_length));
    if (!c->echo && asked == NULL)
        length = sprintf(body,
                         "{\"id\":\"1\",\"model_name\":\"null\",\"model_version\":\"%d\",\"outputs\":[{\"name\":\"y\","
                         "\"datatype\":\"FP32\",\"shape\":[1,4],\"data\":[1.0,2.0,3.0,4.0]}]}",
                         c->version);
    c->answer_length = sprintf(c->answer, "HTTP/1.1 200 OK\r\nContent-Type: application/%s\r\n%sContent-Length: %lld\r\n\r\n%s",
                               c->echo || asked != NULL ? "octet-stream" : "json", extra, length, body);
    c->sent = 0;
    c->phase = ANSWER;
    c->head_length = 0;
    return write_answer(fd);
}

static void read_request_head(struct connection *c)
{
    const char *version = field(c->head, "/versions/"), *line_end = strstr(c->head, "\r\n");
    const char *length = field(c->head, "\r\ncontent-length:");
    c->version = version != NULL && version < line_end ? atoi(version) : 1;
    c->echo = strncmp(c->head, "POST /v2/models/echo/", 21) == 0;
    c->check = field(c->head, "\r\ncheck-body: 1") != NULL;
    c->low = 1;
    c->high = 0;
    c->left = length != NULL ? atoll(length) : 0;
    c->line_length = 0;
    c->phase = field(c->head, "\r\ntransfer-encoding: chunked") != NULL ? CHUNK_SIZE : BODY;
}

/* Take one byte of a line; true when the line is complete, without its end. */
static int line_complete(struct connection *c, char byte)
{
    if (byte == '\n') {
        c->line[c->line_length] = 0;
        c->line_length = 0;
        return 1;
    }
    if (byte != '\r' && c->line_length < (int)sizeof c->line - 1)
        c->line[c->line_length++] = byte;
    return 0;
}

/* Take bytes of a body; how many were used. The phase becomes ANSWER at its end. */
static size_t read_body(struct connection *c, const char *bytes, size_t length)
{
    size_t used = 0;
    while (used < length && c->phase != ANSWER) {
        if (c->phase == BODY || c->phase == CHUNK) {
            size_t piece = (long long)(length - used) < c->left ? length - used : (size_t)c->left;
            take(c, bytes + used, piece);
            used += piece;
            c->left -= piece;
            if (c->left == 0)
                c->phase = c->phase == BODY ? ANSWER : CHUNK_END;
        } else if (line_complete(c, bytes[used++])) {
            if (c->phase == CHUNK_SIZE) {
                c->left = strtoll(c->line, NULL, 16);
                c->phase = c->left > 0 ? CHUNK : TRAILER;
            } else if (c->phase == CHUNK_END) {
                c->phase = CHUNK_SIZE;
            } else if (c->line[0] == 0) {
                c->phase = ANSWER;
            }
        }
    }
    return used;
}

/* Bytes after the head belong to the body; pipelining is not supported. */
static int read_head(int fd, ssize_t came)
{
    struct connection *c = connections[fd];
    c->head_length += came;
    c->head[c->head_length] = 0;
    char *end = strstr(c->head, "\r\n\r\n");
    if (end == NULL)
        return c->head_length < HEAD_MAX;
    size_t rest = c->head_length - (end + 4 - c->head);
    end[2] = 0;
    read_request_head(c);
    if (field(c->head, "\r\nexpect: 100-continue") != NULL)
        send(fd, "HTTP/1.1 100 Continue\r\n\r\n", 25, MSG_NOSIGNAL);
    c->phase = c->phase == BODY && c->left == 0 ? ANSWER : c->phase;
    read_body(c, end + 4, rest);
    return 1;
}

static void readable(int fd)
{
    struct connection *c = connections[fd];
    for (;;) {
        const int in_head = c->phase == HEAD;
        char *into = in_head ? c->head + c->head_length : input;
        const size_t room = in_head ? (size_t)(HEAD_MAX - c->head_length) : READ;
        ssize_t came = recv(fd, into, room, 0);
        if (came < 0 && errno == EAGAIN)
            return;
        if (came <= 0 || (in_head && !read_head(fd, came)))
            return (void)leave(fd);
        if (!in_head)
            read_body(c, input, came);
        if (c->phase == ANSWER && begin_answer(fd) < 0)
            return;
        if (came < (ssize_t)room)
            return;
    }
}

static void welcome(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
    if (fd >= CONNECTIONS)
        close(fd);
    if (fd < 0 || fd >= CONNECTIONS)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connections[fd] = calloc(1, sizeof **connections);
    connections[fd]->events = EPOLLIN;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
}

static int listen_on(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (void *)&address, sizeof address) != 0 || listen(fd, 1024) != 0) {
        perror("http_upstream");
        exit(1);
    }
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
    return fd;
}

static void act(int fd, int last_listener)
{
    if (fd <= last_listener)
        welcome(fd);
    else if (connections[fd]->phase != ANSWER || write_answer(fd) == 1)
        readable(fd);
}

int main(int count, char **ports)
{
    struct epoll_event events[256];
    int last_listener = 0;
    poller = epoll_create1(EPOLL_CLOEXEC);
    for (int byte = 0; byte < PATTERN; byte++)
        pattern[byte] = (char)(byte % CYCLE);
    for (int number = 1; number < count; number++)
        last_listener = listen_on(atoi(ports[number])); /* the listeners have the lowest numbers */
    for (;;) {
        const int ready = epoll_wait(poller, events, 256, -1);
        for (int number = 0; number < ready; number++)
            act(events[number].data.fd, last_listener);
    }
}
