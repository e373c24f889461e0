/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few helpers of bpf(2) and conventions of libbpf that the programs use. Their numbers are the kernel's interface.
 */
#ifndef UPCALL_BPF_HELPERS_H
#define UPCALL_BPF_HELPERS_H

#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))
#define barrier() asm volatile("" ::: "memory")

/* How libbpf reads what a map is: from the types in its section. */
#define __uint(name, value) int (*name)[value]
#define __type(name, value) typeof(value) *name
#define __array(name, value) typeof(value) *name[]

/* A function or variable of the kernel. One that is weak may be missing: then its address is 0. */
#define __ksym __attribute__((section(".ksyms")))
#define __weak __attribute__((weak))

#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_HASH_OF_MAPS 13
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_MAP_TYPE_TASK_STORAGE 29
#define BPF_F_NO_PREALLOC 1
#define BPF_F_MMAPABLE 1024
#define BPF_LOCAL_STORAGE_GET_F_CREATE 1
#define BPF_RB_FORCE_WAKEUP 2

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static unsigned int (*const bpf_get_smp_processor_id)(void) = (void *)8;
static unsigned long long (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*const bpf_probe_read_kernel_str)(void *to, unsigned int size, const void *from) = (void *)115;
static long (*const bpf_ringbuf_output)(void *ring, void *data, unsigned long long size, unsigned long long flags) = (void *)130;
static void *(*const bpf_task_storage_get)(void *map, struct task_struct *task, void *value, unsigned long long flags) = (void *)156;
static long (*const bpf_task_pt_regs)(struct task_struct *task) = (void *)175;

#endif
