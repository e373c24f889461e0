/* Threads keep values in vector, mask and tile registers for several time slices, after one of them has used tiles (AMX):
 * from then on its kernel thread's signal frames are larger than those of others, which may continue them. Where there are no
 * tiles, the other registers alone. */
#include "case.h"
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>

enum { THREADS = 6, ROUNDS = 8, ROWS = 16, BYTES = 64, ALLOW = 0x1023, TILE_DATA = 18 };

#define TURNS 20000000L

struct configuration {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} __attribute__((packed));

static void configure(int rows)
{
    struct configuration wanted = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        wanted.row_bytes[i] = BYTES;
        wanted.rows[i] = (uint8_t)rows;
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(wanted));
}

static void *uses_once(void *unused)
{
    configure(ROWS);
    __asm__ volatile("tilezero %%tmm0\n\ttilerelease" ::: "memory");
    return unused;
}

__attribute__((target("avx512f,avx512bw"))) static void *keeps_vectors(void *number)
{
    long bad = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t in[8], out[8], mask = 0, wanted = 0xabcd0000u + (uint64_t)(long)number;
        long left = TURNS;
        for (int i = 0; i < 8; i++) {
            in[i] = (uint64_t)(long)number * 1000 + (uint64_t)i;
        }
        __asm__ volatile("vmovdqu64 (%[in]), %%zmm17\n\t"
                         "kmovq %[wanted], %%k1\n"
                         "1: dec %[left]\n\t"
                         "jnz 1b\n\t"
                         "kmovq %%k1, %[mask]\n\t"
                         "vmovdqu64 %%zmm17, (%[out])"
                         : [mask] "=&r"(mask), [left] "+r"(left)
                         : [in] "r"(in), [out] "r"(out), [wanted] "r"(wanted)
                         : "cc", "memory", "xmm17", "k1");
        bad += memcmp(in, out, sizeof in) != 0 || mask != wanted;
    }
    return (void *)bad;
}

static void *keeps_tiles(void *number)
{
    static __thread uint8_t in[ROWS * BYTES], out[ROWS * BYTES];
    int rows = 8 + (int)(long)number;
    long bad = 0;
    for (int i = 0; i < ROWS * BYTES; i++) {
        in[i] = (uint8_t)(i * 7 + (int)(long)number);
    }
    for (int round = 0; round < ROUNDS; round++) {
        long left = TURNS;
        memset(out, 0, sizeof out);
        configure(rows);
        __asm__ volatile("tileloadd (%[in],%[step],1), %%tmm5\n"
                         "1: dec %[left]\n\t"
                         "jnz 1b\n\t"
                         "tilestored %%tmm5, (%[out],%[step],1)\n\t"
                         "tilerelease"
                         : [left] "+r"(left)
                         : [in] "r"(in), [out] "r"(out), [step] "r"((long)BYTES)
                         : "cc", "memory");
        bad += memcmp(in, out, (size_t)rows * BYTES) != 0;
    }
    return (void *)bad;
}

static void try(const char *name, int there, void *(*work)(void *))
{
    pthread_t threads[THREADS];
    long bad = 0;
    for (long i = 0; there && i < THREADS; i++) {
        threads[i] = start(work, (void *)i);
    }
    for (int i = 0; there && i < THREADS; i++) {
        void *its;
        MUST(pthread_join(threads[i], &its));
        bad += (long)its;
    }
    check(name, bad == 0, "%ld of %d", bad, THREADS * ROUNDS);
}

int main(void)
{
    int vectors = __builtin_cpu_supports("avx512bw") != 0;
    int tiles = syscall(SYS_arch_prctl, ALLOW, TILE_DATA) == 0;
    try("vectors", vectors, keeps_vectors);
    if (tiles) {
        join(start(uses_once, NULL));
    }
    try("vectors_after_tiles", vectors, keeps_vectors);
    try("tiles", tiles, keeps_tiles);
    try("vectors_beside_tiles", vectors, keeps_vectors);
    return verdict();
}
