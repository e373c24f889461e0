/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs need of the kernel's types: the fields that they use, with the types that the kernel gives them. Where
 * they are is found when the object is loaded (CO-RE). Written by
 *   cargo run -p upcall-bpf --features bpf --example kernel-header
 * from the BTF of a running kernel, and compared with it by a test. Change the list there.
 */
#ifndef UPCALL_BPF_KERNEL_H
#define UPCALL_BPF_KERNEL_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
  int counter;
} atomic_t;
typedef int __kernel_pid_t;
typedef __kernel_pid_t pid_t;

struct signal_struct {
  atomic_t live;
};

struct task_struct {
  unsigned int __state;
  pid_t pid;
  pid_t tgid;
  struct signal_struct *signal;
};

struct pt_regs {
  long unsigned int orig_ax;
};

#pragma clang attribute pop

#endif
