/* Registers of computing threads under preemption. More threads than processors each fill the
 * vector, mask and x87 registers with values of their own, compute for a while without touching
 * memory, and look again. Control words (MXCSR, x87) are the thread's own too. */
#include "case.h"
#include <fenv.h>
#include <stdatomic.h>
#include <stdint.h>

static atomic_long rounds, wrong_vector, wrong_mask, wrong_x87, wrong_control, wrong_general;
static atomic_int stop;
static int have_avx, have_avx512;

/* Spins for about a tenth of a time slice in registers only. */
#define SPIN "mov $200000, %%ecx\n 1: dec %%ecx\n jnz 1b\n"

static int avx512_round(uint64_t seed)
{
    uint64_t in[32 * 8], out[32 * 8], mask = seed * 0x9e3779b97f4a7c15ull, mask_out[2];
    for (int i = 0; i < 32 * 8; i++)
        in[i] = seed * 1000003 + i;
    memset(out, 0, sizeof out);
#define LOAD(n) "vmovdqu64 " #n "*64(%[in]), %%zmm" #n "\n"
#define SAVE(n) "vmovdqu64 %%zmm" #n ", " #n "*64(%[out])\n"
#define ALL(X)                                                                                     \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)          \
    X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
    __asm__ volatile("kmovq %[mask], %%k1\n kmovq %[mask], %%k7\n" ALL(LOAD) SPIN ALL(SAVE)
                     "kmovq %%k1, %%rax\n mov %%rax, (%[masks])\n"
                     "kmovq %%k7, %%rax\n mov %%rax, 8(%[masks])\n vzeroupper\n"
                     :
                     : [in] "r"(in), [out] "r"(out), [mask] "r"(mask), [masks] "r"(mask_out)
                     : "rax", "rcx", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
                       "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                       "xmm15");
#undef LOAD
#undef SAVE
#undef ALL
    atomic_fetch_add(&wrong_mask, mask_out[0] != mask || mask_out[1] != mask);
    return memcmp(in, out, sizeof in) != 0;
}

static int avx_round(uint64_t seed)
{
    uint64_t in[16 * 4], out[16 * 4];
    for (int i = 0; i < 16 * 4; i++)
        in[i] = seed * 1000003 + i;
    memset(out, 0, sizeof out);
#define LOAD(n) "vmovdqu " #n "*32(%[in]), %%ymm" #n "\n"
#define SAVE(n) "vmovdqu %%ymm" #n ", " #n "*32(%[out])\n"
#define ALL(X)                                                                                     \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
    __asm__ volatile(ALL(LOAD) SPIN ALL(SAVE) "vzeroupper\n"
                     :
                     : [in] "r"(in), [out] "r"(out)
                     : "rcx", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
                       "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    return memcmp(in, out, sizeof in) != 0;
}

static int x87_round(uint64_t seed)
{
    double in[6], out[6];
    for (int i = 0; i < 6; i++)
        in[i] = (double)seed * 3 + i;
    __asm__ volatile("fldl (%[in])\n fldl 8(%[in])\n fldl 16(%[in])\n fldl 24(%[in])\n"
                     "fldl 32(%[in])\n fldl 40(%[in])\n" SPIN
                     "fstpl 40(%[out])\n fstpl 32(%[out])\n fstpl 24(%[out])\n fstpl 16(%[out])\n"
                     "fstpl 8(%[out])\n fstpl (%[out])\n"
                     :
                     : [in] "r"(in), [out] "r"(out)
                     : "rcx", "memory", "cc", "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)");
    return memcmp(in, out, sizeof in) != 0;
}

static int general_round(uint64_t seed)
{
    uint64_t result;
    /* r8 to r15, rbx, rdx, rsi, rdi and the carry flag stay over the spin (`dec` leaves it). */
    __asm__ volatile("mov %[seed], %%r8\n lea 1(%[seed]), %%r9\n lea 2(%[seed]), %%r10\n"
                     "lea 3(%[seed]), %%r11\n lea 4(%[seed]), %%r12\n lea 5(%[seed]), %%r13\n"
                     "lea 6(%[seed]), %%r14\n lea 7(%[seed]), %%r15\n lea 8(%[seed]), %%rdx\n"
                     "lea 9(%[seed]), %%rsi\n lea 10(%[seed]), %%rdi\n"
                     "mov $200000, %%ecx\n stc\n 1: dec %%ecx\n jnz 1b\n"
                     "setc %%al\n movzbl %%al, %%eax\n"
                     "add %%r8, %%rax\n add %%r9, %%rax\n add %%r10, %%rax\n add %%r11, %%rax\n"
                     "add %%r12, %%rax\n add %%r13, %%rax\n add %%r14, %%rax\n add %%r15, %%rax\n"
                     "add %%rdx, %%rax\n add %%rsi, %%rax\n add %%rdi, %%rax\n"
                     : "=&a"(result)
                     : [seed] "b"(seed)
                     : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
                       "r15", "cc");
    return result != 11 * seed + 55 + 1;
}

static void *body(void *number)
{
    uint64_t seed = (uint64_t)(long)number + 1;
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    int mode = modes[seed % 4];
    fesetround(mode);
    while (!atomic_load(&stop)) {
        seed += 64;
        if (have_avx512)
            atomic_fetch_add(&wrong_vector, avx512_round(seed));
        if (have_avx)
            atomic_fetch_add(&wrong_vector, avx_round(seed));
        atomic_fetch_add(&wrong_x87, x87_round(seed));
        atomic_fetch_add(&wrong_general, general_round(seed));
        unsigned mxcsr = 0;
        unsigned short x87 = 0;
        __asm__ volatile("stmxcsr %0\n fnstcw %1" : "=m"(mxcsr), "=m"(x87));
        atomic_fetch_add(&wrong_control,
                         (int)(mxcsr >> 3 & 0xc00) != mode || (x87 & 0xc00) != mode);
        atomic_fetch_add(&rounds, 1);
        if (seed % 5 == 0)
            sched_yield();
    }
    return NULL;
}

int main(int count, char **words)
{
    int milliseconds = count > 1 ? atoi(words[1]) : 3000;
    have_avx = __builtin_cpu_supports("avx") != 0;
    have_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    pthread_t threads[16];
    int many = (int)sysconf(_SC_NPROCESSORS_ONLN) * 3;
    if (many > 16)
        many = 16;
    for (long i = 0; i < many; i++)
        threads[i] = start(body, (void *)i);
    /* Preemption is what is looked for, so let them run for that long. */
    usleep(milliseconds * 1000);
    atomic_store(&stop, 1);
    for (int i = 0; i < many; i++)
        join(threads[i]);
    check("registers_vector", wrong_vector == 0, "%ld of %ld rounds", wrong_vector, rounds);
    check("registers_mask", wrong_mask == 0, "%ld of %ld rounds", wrong_mask, rounds);
    check("registers_x87", wrong_x87 == 0, "%ld of %ld rounds", wrong_x87, rounds);
    check("registers_control", wrong_control == 0, "%ld of %ld rounds", wrong_control, rounds);
    check("registers_general", wrong_general == 0, "%ld of %ld rounds", wrong_general, rounds);
    check("registers_rounds", rounds >= many, "%ld rounds by %d threads", rounds, many);
    return verdict();
}
