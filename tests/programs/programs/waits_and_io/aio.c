/* POSIX asynchronous I/O: libc's own helper threads read and write, with aio_suspend, lio_listio
 * and notification by thread. */
#include "case.h"
#include <aio.h>
#include <fcntl.h>
#include <semaphore.h>

static sem_t notified;

static void done(union sigval value)
{
    (void)value;
    sem_post(&notified);
}

static ssize_t finish(struct aiocb *block)
{
    const struct aiocb *list[1] = {block};
    while (aio_error(block) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    return aio_return(block);
}

int main(void)
{
    char name[] = "aio-XXXXXX", text[64] = "", back[4][16] = {""};
    int file = mkstemp(name);
    unlink(name);
    struct aiocb block = {.aio_fildes = file, .aio_buf = "asynchronous", .aio_nbytes = 12};
    MUST(aio_write(&block));
    ssize_t moved = finish(&block);
    check("aio_write", moved == 12, "%zd bytes", moved);

    block.aio_buf = text;
    MUST(aio_read(&block));
    moved = finish(&block);
    check("aio_read", moved == 12 && strcmp(text, "asynchronous") == 0, "%zd bytes: %s", moved, text);

    struct aiocb blocks[4], *list[4];
    memset(blocks, 0, sizeof blocks);
    for (int i = 0; i < 4; i++) {
        blocks[i].aio_fildes = file;
        blocks[i].aio_offset = i * 3;
        blocks[i].aio_buf = back[i];
        blocks[i].aio_nbytes = 3;
        blocks[i].aio_lio_opcode = LIO_READ;
        list[i] = &blocks[i];
    }
    MUST(lio_listio(LIO_WAIT, list, 4, NULL));
    int same = 1;
    for (int i = 0; i < 4; i++)
        same = same && aio_return(&blocks[i]) == 3 && memcmp(back[i], &text[i * 3], 3) == 0;
    check("lio_listio", same, "%s %s %s %s", back[0], back[1], back[2], back[3]);

    MUST(sem_init(&notified, 0, 0));
    block.aio_sigevent.sigev_notify = SIGEV_THREAD;
    block.aio_sigevent.sigev_notify_function = done;
    MUST(aio_read(&block));
    while (sem_wait(&notified) != 0) {
    }
    check("aio_notify_thread", aio_error(&block) == 0 && aio_return(&block) == 12, "errno %d",
          aio_error(&block));
    return verdict();
}
