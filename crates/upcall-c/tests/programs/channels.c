/* Channels: every element arrives once, in the order of its sender; closing, limits, and what is refused. */
#include <stdatomic.h>

#include "check.h"

enum { SENDERS = 5, RECEIVERS = 4, EACH = 400 };

struct element {
    uint32_t sender, number;
    char padding[9];
};

static upcall_channel_t *channel;
static atomic_int next_sender, received[SENDERS][EACH];

static void *sends(void *unused)
{
    (void)unused;
    struct element element = { next_sender++, 0, "12345678" };
    for (; element.number < EACH; element.number++) {
        struct timespec deadline = in_ns(100000 * MS);
        int answer = EAGAIN;
        if (element.number % 3 == 0)
            answer = upcall_channel_trysend(channel, &element);
        else if (element.number % 3 == 1)
            answer = upcall_channel_timedsend(channel, &element, &deadline);
        if (answer == EAGAIN)
            answer = upcall_channel_send(channel, &element);
        OK(answer);
    }
    return NULL;
}

static void *receives(void *unused)
{
    (void)unused;
    struct element element;
    uint32_t next[SENDERS] = { 0 };
    for (int i = 0;; i++) {
        struct timespec deadline = in_ns(100000 * MS);
        int answer = EAGAIN;
        if (i % 3 == 0)
            answer = upcall_channel_tryreceive(channel, &element);
        else if (i % 3 == 1)
            answer = upcall_channel_timedreceive(channel, &element, &deadline);
        if (answer == EAGAIN)
            answer = upcall_channel_receive(channel, &element);
        if (answer == EPIPE)
            return NULL;
        OK(answer);
        CHECK(element.sender < SENDERS && element.number < EACH && strcmp(element.padding, "12345678") == 0);
        CHECK(element.number >= next[element.sender]);
        next[element.sender] = element.number + 1;
        received[element.sender][element.number]++;
    }
}

static void many(size_t capacity)
{
    upcall_thread_t senders[SENDERS], receivers[RECEIVERS];
    pthread_t plain_sender, plain_receiver;
    next_sender = 0;
    memset(received, 0, sizeof received);
    OK(upcall_channel_create(&channel, sizeof(struct element), capacity));
    OK(pthread_create(&plain_receiver, NULL, receives, NULL));
    OK(pthread_create(&plain_sender, NULL, sends, NULL));
    for (int i = 0; i < RECEIVERS; i++)
        OK(upcall_thread_create(&receivers[i], NULL, receives, NULL));
    for (int i = 1; i < SENDERS; i++)
        OK(upcall_thread_create(&senders[i], NULL, sends, NULL));
    OK(pthread_join(plain_sender, NULL));
    for (int i = 1; i < SENDERS; i++)
        OK(upcall_thread_join(senders[i], NULL));
    OK(upcall_channel_close(channel));
    OK(pthread_join(plain_receiver, NULL));
    for (int i = 0; i < RECEIVERS; i++)
        OK(upcall_thread_join(receivers[i], NULL));
    for (int i = 0; i < SENDERS; i++)
        for (int k = 0; k < EACH; k++)
            CHECK(received[i][k] == 1);
    OK(upcall_channel_destroy(channel));
}

/* The ring is used all around, and grows with its elements in two parts. */
static void grows(void)
{
    upcall_channel_t *own;
    OK(upcall_channel_create(&own, sizeof(int), UPCALL_UNBOUNDED));
    int sent = 0, expected = 0, got;
    for (int round = 1; round < 60; round++) {
        for (int i = 0; i < round * 3; i++, sent++)
            OK(upcall_channel_send(own, &sent));
        for (int i = 0; i < round * 2; i++, expected++) {
            OK(upcall_channel_receive(own, &got));
            CHECK(got == expected);
        }
        size_t length;
        OK(upcall_channel_length(own, &length));
        CHECK(length == (size_t)(sent - expected));
    }
    OK(upcall_channel_close(own));
    for (; expected < sent; expected++) {
        OK(upcall_channel_receive(own, &got));
        CHECK(got == expected);
    }
    ANSWERS(EPIPE, upcall_channel_receive(own, &got));
    OK(upcall_channel_destroy(own));
}

static atomic_int begun;

static void *waits_to_send(void *own)
{
    begun++;
    return (void *)(size_t)upcall_channel_send(own, "x");
}

static void *waits_to_receive(void *own)
{
    char element;
    begun++;
    return (void *)(size_t)upcall_channel_receive(own, &element);
}

static void closing(void *(*body)(void *), size_t full)
{
    upcall_channel_t *own;
    upcall_thread_t threads[3];
    void *answer;
    OK(upcall_channel_create(&own, 1, 2));
    for (size_t i = 0; i < full; i++)
        OK(upcall_channel_send(own, "y"));
    begun = 0;
    for (int i = 0; i < 3; i++)
        OK(upcall_thread_create(&threads[i], NULL, body, own));
    while (begun < 3)
        upcall_thread_yield();
    upcall_thread_sleep(MS);
    OK(upcall_channel_close(own));
    ANSWERS(EALREADY, upcall_channel_close(own));
    for (int i = 0; i < 3; i++) {
        OK(upcall_thread_join(threads[i], &answer));
        CHECK(answer == (void *)EPIPE);
    }
    OK(upcall_channel_destroy(own));
}

static void refusals(void)
{
    upcall_channel_t *own;
    char byte = 0;
    struct timespec deadline = in_ns(MS);
    ANSWERS(EINVAL, upcall_channel_create(&own, 1, 0));
    ANSWERS(EINVAL, upcall_channel_create(NULL, 1, 1));
    ANSWERS(ENOMEM, upcall_channel_create(&own, SIZE_MAX / 2, 3));
    ANSWERS(ENOMEM, upcall_channel_create(&own, SIZE_MAX / 64, 32));
    ANSWERS(EINVAL, upcall_channel_send(NULL, &byte));
    OK(upcall_channel_create(&own, 1, 1));
    ANSWERS(EINVAL, upcall_channel_send(own, NULL));
    ANSWERS(EAGAIN, upcall_channel_tryreceive(own, &byte));
    ANSWERS(ETIMEDOUT, upcall_channel_timedreceive(own, &byte, &deadline));
    OK(upcall_channel_send(own, &byte));
    ANSWERS(EAGAIN, upcall_channel_trysend(own, &byte));
    ANSWERS(ETIMEDOUT, upcall_channel_timedsend(own, &byte, &deadline));
    ANSWERS(EINVAL, upcall_channel_timedsend(own, &byte, NULL));
    OK(upcall_channel_destroy(own));
    OK(upcall_channel_destroy(NULL));
    /* Without bytes: signals. */
    OK(upcall_channel_create(&own, 0, 2));
    OK(upcall_channel_send(own, NULL));
    OK(upcall_channel_send(own, NULL));
    ANSWERS(EAGAIN, upcall_channel_trysend(own, NULL));
    OK(upcall_channel_receive(own, NULL));
    OK(upcall_channel_destroy(own));
}

int main(void)
{
    start_as_told();
    many(1);
    many(7);
    many(UPCALL_UNBOUNDED);
    grows();
    closing(waits_to_send, 2);
    closing(waits_to_receive, 0);
    refusals();
    puts("ok");
    return 0;
}
