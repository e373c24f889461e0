/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs need of the kernel's types: the fields that they use, with the types that the kernel gives them. Where
 * they are is found when the object is loaded (CO-RE). Written by
 *   cargo run -p upcall-bpf --features bpf --example kernel-header -- --scheduler
 * from the BTF of a running kernel, and compared with it by a test. Change the list there.
 */
#ifndef UPCALL_BPF_SCHEDULER_KERNEL_H
#define UPCALL_BPF_SCHEDULER_KERNEL_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef unsigned int __u32;
typedef __u32 u32;
typedef long long unsigned int __u64;
typedef __u64 u64;
typedef int __kernel_pid_t;
typedef __kernel_pid_t pid_t;
enum scx_exit_kind {
  SCX_EXIT_NONE = 0,
};
typedef long long int __s64;
typedef __s64 s64;

struct cpumask {
};

struct sched_ext_entity {
  u32 weight;
  u32 flags;
  u64 slice;
  u64 dsq_vtime;
};

struct task_struct {
  unsigned int flags;
  pid_t pid;
  pid_t tgid;
  struct task_struct *group_leader;
  int nr_cpus_allowed;
  struct cpumask *cpus_ptr;
  struct sched_ext_entity scx;
};

struct scx_exit_info {
  enum scx_exit_kind kind;
  s64 exit_code;
  char *reason;
  char *msg;
};

struct bpf_iter_scx_dsq {
  u64 __opaque[6];
};

struct sched_ext_ops {
  void (*select_cpu)(void);
  void (*enqueue)(void);
  void (*dispatch)(void);
  void (*running)(void);
  void (*stopping)(void);
  void (*runnable)(void);
  void (*quiescent)(void);
  void (*yield)(void);
  void (*init_task)(void);
  void (*init)(void);
  void (*exit)(void);
  u32 timeout_ms;
  char name[128];
};

#pragma clang attribute pop

#endif
