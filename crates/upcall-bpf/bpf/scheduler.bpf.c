/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A scheduler of sched_ext for all ordinary kernel threads. Nothing is ever kept from running until a program says so: each
 * kernel thread that can run gets a processor after a bounded time, whatever the program does.
 *
 * 1. Each kernel thread has a virtual time, which rises with the processor time that it has had while others wanted the
 *    processor, the faster the less it weighs. The least virtual time runs first. It weighs what its nice value says, times what
 *    the daemon says of its process, divided by the number of kernel threads of its process that can run: so processes have
 *    the same time, whatever their number of kernel threads.
 * 2. Who may run on one processor alone waits in the queue PINNED of that processor, everybody else in SHARED. Kernel threads of
 *    the kernel that are bound to a processor run at once.
 * 3. A kernel thread of a space (a process that the daemon has named) that gives way by sched_yield(2) waits in the queue HELD of
 *    its processor until no other one of its space can run there, or for HOLD_NS at most. This is what a standby does.
 * 4. A processor is a space's for a slice: its *turn*. When the one that runs blocks, another of the space goes on there with the
 *    rest of the turn, and if there is none, one that is held. This dispatch is the upcall.
 * 5. A kernel thread of a space that wakes in the space's turn runs at once. Whatever it has to do in the kernel, it does then.
 *
 * A kernel thread is held only if it has called sched_yield(2) itself, so it is in no lock of the kernel, and it has asked for no
 * more than that others of its own space go first.
 */
#include "scheduler-kernel.h"
#include "helpers.h"
#include "upcall/abi.h"

typedef _Bool bool;

/* The kernel's, the same from 6.17 to 7.2. */
#define SCX_DSQ_LOCAL ((1ull << 63) | 2)
#define SCX_ENQ_WAKEUP 1ull
#define SCX_ENQ_PREEMPT (1ull << 32)
#define SCX_KICK_IDLE 1ull
#define SCX_KICK_PREEMPT 2ull
#define SCX_TASK_QUEUED 1u
#define PF_KTHREAD 0x00200000u
#define ENOMEM 12
#define ESRCH 3

#define CPUS 512
#define PINNED(cpu) ((uint64_t)(cpu))
#define HELD(cpu) (0x10000ull + (cpu))
#define SHARED 0x20000ull
#define NONE (~0ull)

/* How long a kernel thread runs while others wait; the kernel looks when its clock ticks. */
#define SLICE_NS 3000000ull
/* How long one that has given way waits for others of its space. */
#define HOLD_NS 5000000ull
/* So much virtual time may one that has slept be behind, ... */
#define CREDIT_NS 12000000ull
/* ... and one that could run all the time. */
#define LAG_NS 100000000ull
/* So much may one be ahead. */
#define LEAD_NS 100000000ull
/* One that wakes takes the processor of one that is so much further. */
#define MARGIN_NS 1000000ull
/* Processors at which one that wakes looks. */
#define LOOKS 8
/* What a nice value of 0 weighs, in the kernel's words and in the daemon's. */
#define NICE_0 100ull
#define ONE 1024ull

#define HELPER static inline __attribute__((always_inline))
#define APART static __attribute__((noinline))

extern int scx_bpf_create_dsq(uint64_t dsq, int node) __ksym;
extern void scx_bpf_dsq_insert(struct task_struct *p, uint64_t dsq, uint64_t slice, uint64_t flags) __ksym;
extern void scx_bpf_dsq_insert_vtime(struct task_struct *p, uint64_t dsq, uint64_t slice, uint64_t vtime, uint64_t flags) __ksym;
extern bool scx_bpf_dsq_move_to_local(uint64_t dsq) __ksym;
extern void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it, uint64_t slice) __ksym;
extern bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, uint64_t dsq, uint64_t flags) __ksym;
extern int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, uint64_t dsq, uint64_t flags) __ksym;
extern struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
extern void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;
extern int scx_bpf_select_cpu_dfl(struct task_struct *p, int prev, uint64_t flags, bool *is_idle) __ksym;
extern int scx_bpf_pick_idle_cpu(const struct cpumask *allowed, uint64_t flags) __ksym;
extern void scx_bpf_kick_cpu(int cpu, uint64_t flags) __ksym;
extern int scx_bpf_task_cpu(const struct task_struct *p) __ksym;
extern uint32_t scx_bpf_nr_cpu_ids(void) __ksym;
extern uint64_t scx_bpf_now(void) __ksym;
/* Later kernels want a slice to be set by this. */
extern bool scx_bpf_task_set_slice(struct task_struct *p, uint64_t slice) __ksym __weak;
extern bool bpf_cpumask_test_cpu(uint32_t cpu, const struct cpumask *cpumask) __ksym;
extern struct task_struct *bpf_task_from_pid(int pid) __ksym;
extern void bpf_task_release(struct task_struct *p) __ksym;

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* A kernel thread, and, with the leader of its process, that process. */
struct thread {
  uint64_t vtime;
  /* Since when it runs, or was charged last. */
  uint64_t since;
  /* Since when it is held; 0: it is not. */
  uint64_t held_at;
  /* Which process's number of those that can run it is in; 0: none. */
  uint64_t counted;
  /* It has just given way. */
  uint32_t gave_way;
  uint32_t is_space;
  /* Of the process. */
  uint64_t id;
  uint32_t weight;
  int runnable;
};

struct {
  __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, struct thread);
} threads SEC(".maps");

/* How the scheduler has ended, for the daemon. */
struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 4096);
} ends SEC(".maps");

struct scheduler_end {
  uint64_t code;
  uint32_t kind;
  char reason[64];
  char message[128];
  uint32_t reserved;
};

/* So that the object says what it takes the layout for: the daemon's tests compare. */
const struct scheduler_end *layout __attribute__((unused));

/* A processor. */
struct cpu {
  /* Whose turn it is, until when, and if that is a space. */
  uint64_t turn_ends;
  uint32_t turn;
  uint32_t is_space;
  /* What runs there: its virtual time at the beginning, when that was, and what it is charged for 1024 ns; 0: nothing of ours. */
  uint64_t vtime;
  uint64_t since;
  uint64_t rate;
  /* Counts, which the daemon reads. */
  uint64_t upcalls;
  uint64_t at_once;
  uint64_t overdue;
};

struct cpu cpus[CPUS] SEC(".bss.cpus");
uint64_t vtime_now = 1ull << 40;
uint64_t ids;

/* The compiler may not know that the mask changes nothing, since the verifier does not know. */
HELPER struct cpu *cpu_of(uint32_t number) {
  if (number >= CPUS)
    return 0;
  asm volatile("" : "+r"(number));
  return &cpus[number & (CPUS - 1)];
}

HELPER struct thread *of(struct task_struct *task) {
  return bpf_task_storage_get(&threads, task, 0, 0);
}

HELPER struct thread *process_of(struct task_struct *task, struct thread *own) {
  struct task_struct *leader = task->group_leader;
  struct thread *process = leader ? bpf_task_storage_get(&threads, leader, 0, 0) : 0;

  return process ? process : own;
}

HELPER void set_slice(struct task_struct *task, uint64_t slice) {
  if (scx_bpf_task_set_slice)
    scx_bpf_task_set_slice(task, slice);
  else
    task->scx.slice = slice;
}

HELPER bool is_pinned(struct task_struct *task) {
  return task->nr_cpus_allowed == 1;
}

/* What 1024 ns cost. */
HELPER uint64_t rate_of(struct task_struct *task, struct thread *process) {
  uint64_t weight = (uint64_t)task->scx.weight * process->weight;
  int runnable = process->runnable;

  if (runnable < 1)
    runnable = 1;
  return NICE_0 * ONE * 1024 * (uint64_t)runnable / (weight ? weight : 1);
}

/* By what it cost when it began to run on this processor: another one of its process that has just woken is the reason why it is
 * stopped, and did not run meanwhile. */
HELPER void charge(struct thread *own, struct thread *process, struct cpu *cpu, uint64_t now) {
  uint64_t used = now - own->since;

  own->since = now;
  if (own->gave_way && !process->is_space && used < SLICE_NS)
    used = SLICE_NS;
  own->vtime += used * cpu->rate / 1024;
}

/* One that is far from the others is not any more. */
HELPER void place(struct thread *own, uint64_t lag) {
  uint64_t now = vtime_now;

  if (own->vtime < now - lag)
    own->vtime = now - lag;
  if (own->vtime > now + LEAD_NS)
    own->vtime = now + LEAD_NS;
}

HELPER void count(struct thread *own, struct thread *process) {
  if (!own->counted) {
    own->counted = process->id;
    __sync_fetch_and_add(&process->runnable, 1);
  }
}

/* After exec(2) by another one than the leader, the process is another. */
HELPER void discount(struct thread *own, struct thread *process) {
  if (own->counted == process->id)
    __sync_fetch_and_add(&process->runnable, -1);
  own->counted = 0;
}

/* The virtual time of the first one in this queue. */
APART uint64_t first(uint64_t dsq) {
  struct bpf_iter_scx_dsq it;
  struct task_struct *task;
  uint64_t vtime = NONE;

  bpf_iter_scx_dsq_new(&it, dsq, 0);
  task = bpf_iter_scx_dsq_next(&it);
  if (task)
    vtime = task->scx.dsq_vtime;
  bpf_iter_scx_dsq_destroy(&it);
  return vtime;
}

APART bool has(uint64_t dsq, uint32_t process) {
  struct bpf_iter_scx_dsq it;
  struct task_struct *task;
  bool found = 0;

  bpf_iter_scx_dsq_new(&it, dsq, 0);
  while (!found && (task = bpf_iter_scx_dsq_next(&it)))
    found = task->tgid == (int)process;
  bpf_iter_scx_dsq_destroy(&it);
  return found;
}

/* The first one of this process in this queue runs next, for so long. */
APART bool run_of(uint64_t dsq, uint32_t process, uint64_t slice) {
  struct bpf_iter_scx_dsq it;
  struct task_struct *task;
  bool moved = 0;

  bpf_iter_scx_dsq_new(&it, dsq, 0);
  while (!moved && (task = bpf_iter_scx_dsq_next(&it))) {
    if (task->tgid != (int)process)
      continue;
    scx_bpf_dsq_move_set_slice(&it, slice);
    moved = scx_bpf_dsq_move(&it, task, SCX_DSQ_LOCAL, 0);
  }
  bpf_iter_scx_dsq_destroy(&it);
  return moved;
}

/* One that is held here runs next if it has been so for long, or if nobody else of its space can run here and its virtual time is
 * less than `least`. `busy` is the process of the one that would go on. */
APART bool run_held(uint32_t number, uint32_t busy, uint64_t least, uint64_t now) {
  struct bpf_iter_scx_dsq it;
  struct task_struct *task;
  struct cpu *cpu;
  bool moved = 0, is_overdue = 0;

  bpf_iter_scx_dsq_new(&it, HELD(number), 0);
  while (!moved && (task = bpf_iter_scx_dsq_next(&it))) {
    struct thread *own = of(task);
    uint32_t process = task->tgid;

    if (!own)
      continue;
    is_overdue = now - own->held_at > HOLD_NS;
    if (!is_overdue && (process == busy || own->vtime >= least || has(PINNED(number), process)))
      continue;
    scx_bpf_dsq_move_set_slice(&it, SLICE_NS);
    moved = scx_bpf_dsq_move(&it, task, SCX_DSQ_LOCAL, 0);
  }
  bpf_iter_scx_dsq_destroy(&it);
  cpu = cpu_of(number);
  if (moved && cpu) {
    if (is_overdue)
      cpu->overdue++;
    else
      cpu->upcalls++;
  }
  return moved;
}

/* One that wakes takes the processor on which somebody runs who is furthest ahead of it, among these, if there is one. */
HELPER void preempt(struct task_struct *task, struct thread *own, uint32_t number, uint32_t looks, uint64_t now) {
  uint32_t all = scx_bpf_nr_cpu_ids(), found = CPUS;
  uint64_t furthest = own->vtime + MARGIN_NS;

  for (uint32_t at = 0; at < LOOKS; at++) {
    uint32_t candidate = number + at;
    struct cpu *cpu;
    uint64_t vtime;

    if (at >= looks || at >= all)
      break;
    if (candidate >= all)
      candidate -= all;
    cpu = cpu_of(candidate);
    if (!cpu || !cpu->rate || !bpf_cpumask_test_cpu(candidate, task->cpus_ptr))
      continue;
    vtime = cpu->vtime + (now - cpu->since) * cpu->rate / 1024;
    if (vtime > furthest) {
      furthest = vtime;
      found = candidate;
    }
  }
  if (found < CPUS)
    scx_bpf_kick_cpu(found, SCX_KICK_PREEMPT);
}

/* struct task_struct *task, s32 prev_cpu, u64 wake_flags */
SEC("struct_ops/select_cpu")
int upcall_select_cpu(uint64_t *context) {
  struct task_struct *task = (struct task_struct *)context[0];
  struct thread *own = of(task);
  bool is_idle = 0;
  int cpu = scx_bpf_select_cpu_dfl(task, (int)context[1], context[2], &is_idle);

  if (is_idle && own) {
    place(own, CREDIT_NS);
    scx_bpf_dsq_insert(task, SCX_DSQ_LOCAL, SLICE_NS, 0);
  }
  return cpu;
}

/* struct task_struct *task, u64 enq_flags */
SEC("struct_ops/enqueue")
int upcall_enqueue(uint64_t *context) {
  struct task_struct *task = (struct task_struct *)context[0];
  uint64_t flags = context[1], now = scx_bpf_now();
  uint32_t number = scx_bpf_task_cpu(task);
  struct thread *own = of(task), *process;
  struct cpu *cpu = cpu_of(number);
  bool wakes = flags & SCX_ENQ_WAKEUP;

  if (!own || !cpu) {
    /* There is none: see init_task. */
    scx_bpf_dsq_insert(task, SCX_DSQ_LOCAL, SLICE_NS, 0);
    return 0;
  }
  process = process_of(task, own);
  place(own, wakes ? CREDIT_NS : LAG_NS);
  if (!is_pinned(task)) {
    own->gave_way = 0;
    scx_bpf_dsq_insert_vtime(task, SHARED, SLICE_NS, own->vtime, flags);
    if (wakes) {
      preempt(task, own, number, LOOKS, now);
    } else {
      int idle = scx_bpf_pick_idle_cpu(task->cpus_ptr, 0);

      if (idle >= 0)
        scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
    }
    return 0;
  }
  if (task->flags & PF_KTHREAD) {
    scx_bpf_dsq_insert(task, SCX_DSQ_LOCAL, SLICE_NS, SCX_ENQ_PREEMPT);
    return 0;
  }
  if (own->gave_way && process->is_space) {
    own->gave_way = 0;
    own->held_at = now;
    discount(own, process);
    scx_bpf_dsq_insert(task, HELD(number), SLICE_NS, flags);
    return 0;
  }
  own->gave_way = 0;
  if (wakes && process->is_space && cpu->turn == (uint32_t)task->tgid && now < cpu->turn_ends) {
    cpu->at_once++;
    scx_bpf_dsq_insert(task, SCX_DSQ_LOCAL, cpu->turn_ends - now, SCX_ENQ_PREEMPT);
    return 0;
  }
  scx_bpf_dsq_insert_vtime(task, PINNED(number), SLICE_NS, own->vtime, flags);
  if (wakes)
    preempt(task, own, number, 1, now);
  return 0;
}

/* s32 cpu, struct task_struct *prev, who may be nobody. The kernel has nothing more to run there: who can go on has used up its
 * slice, or has given way. */
SEC("struct_ops/dispatch")
int upcall_dispatch(uint64_t *context) {
  uint32_t number = (uint32_t)context[0];
  struct task_struct *prev = (struct task_struct *)context[1];
  struct cpu *cpu = cpu_of(number);
  struct thread *own = 0, *process = 0;
  uint64_t now = scx_bpf_now(), pinned, shared, others;
  bool can_go_on = 0, gave_way = 0;

  if (!cpu)
    return 0;
  if (prev && prev->scx.flags & SCX_TASK_QUEUED) {
    own = of(prev);
    if (own) {
      process = process_of(prev, own);
      can_go_on = 1;
      gave_way = own->gave_way;
    }
  }
  if (cpu->is_space && now < cpu->turn_ends && (!can_go_on || gave_way)) {
    uint64_t rest = cpu->turn_ends - now;

    if (run_of(PINNED(number), cpu->turn, rest))
      return 0;
    if (run_of(HELD(number), cpu->turn, rest)) {
      cpu->upcalls += !can_go_on;
      return 0;
    }
  }
  pinned = first(PINNED(number));
  shared = first(SHARED);
  others = pinned < shared ? pinned : shared;
  if (can_go_on && prev && own && process && !gave_way) {
    /* What nobody else wanted costs nothing. */
    if (others == NONE)
      own->since = now;
    else
      charge(own, process, cpu, now);
    if (run_held(number, prev->tgid, own->vtime < others ? own->vtime : others, now))
      return 0;
    if (own->vtime <= others) {
      if (others != NONE && own->vtime > vtime_now)
        vtime_now = own->vtime;
      cpu->vtime = own->vtime;
      cpu->since = now;
      cpu->rate = rate_of(prev, process);
      cpu->turn_ends = now + SLICE_NS;
      set_slice(prev, SLICE_NS);
      return 0;
    }
  } else if (run_held(number, 0, others, now)) {
    return 0;
  }
  if (pinned <= shared) {
    if (scx_bpf_dsq_move_to_local(PINNED(number)) || scx_bpf_dsq_move_to_local(SHARED))
      return 0;
  } else if (scx_bpf_dsq_move_to_local(SHARED) || scx_bpf_dsq_move_to_local(PINNED(number))) {
    return 0;
  }
  /* Nobody else. */
  if (can_go_on && prev && own) {
    own->gave_way = 0;
    set_slice(prev, SLICE_NS);
  }
  return 0;
}

/* struct task_struct *task */
SEC("struct_ops/running")
int upcall_running(uint64_t *context) {
  struct task_struct *task = (struct task_struct *)context[0];
  uint64_t now = scx_bpf_now();
  struct thread *own = of(task), *process;
  struct cpu *cpu = cpu_of(scx_bpf_task_cpu(task));

  if (!own || !cpu)
    return 0;
  process = process_of(task, own);
  own->since = now;
  own->gave_way = 0;
  if (own->held_at) {
    own->held_at = 0;
    count(own, process);
  }
  cpu->vtime = own->vtime;
  cpu->since = now;
  cpu->rate = rate_of(task, process);
  /* Those of the kernel run in between: whose turn it is goes on afterwards. */
  if (task->flags & PF_KTHREAD)
    return 0;
  if (own->vtime > vtime_now)
    vtime_now = own->vtime;
  if (cpu->turn != (uint32_t)task->tgid || now >= cpu->turn_ends) {
    cpu->turn = task->tgid;
    cpu->turn_ends = now + task->scx.slice;
  }
  cpu->is_space = process->is_space;
  return 0;
}

/* struct task_struct *task, bool runnable. Also when something about it changes while it runs. */
SEC("struct_ops/stopping")
int upcall_stopping(uint64_t *context) {
  struct task_struct *task = (struct task_struct *)context[0];
  struct thread *own = of(task);
  struct cpu *cpu = cpu_of(scx_bpf_task_cpu(task));

  if (!own || !cpu)
    return 0;
  charge(own, process_of(task, own), cpu, scx_bpf_now());
  cpu->rate = 0;
  return 0;
}

/* struct task_struct *task, u64 enq_flags */
SEC("struct_ops/runnable")
int upcall_runnable(uint64_t *context) {
  struct task_struct *task = (struct task_struct *)context[0];
  struct thread *own = of(task);

  if (own)
    count(own, process_of(task, own));
  return 0;
}

/* struct task_struct *task, u64 deq_flags */
SEC("struct_ops/quiescent")
int upcall_quiescent(uint64_t *context) {
  struct task_struct *task = (struct task_struct *)context[0];
  struct thread *own = of(task);

  if (own) {
    own->held_at = 0;
    own->gave_way = 0;
    discount(own, process_of(task, own));
  }
  return 0;
}

/* struct task_struct *from, struct task_struct *to, who may be nobody: then `from` gives way to everybody. */
SEC("struct_ops/yield")
int upcall_yield(uint64_t *context) {
  struct task_struct *from = (struct task_struct *)context[0];
  struct thread *own = of(from);

  if (context[1])
    return 0;
  if (own)
    own->gave_way = 1;
  set_slice(from, 0);
  return 0;
}

/* struct task_struct *task, struct scx_init_task_args *args */
SEC("struct_ops/init_task")
int upcall_init_task(uint64_t *context) {
  struct task_struct *task = (struct task_struct *)context[0];
  struct thread *own = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

  if (!own)
    return -ENOMEM;
  own->vtime = vtime_now;
  own->weight = ONE;
  own->id = __sync_fetch_and_add(&ids, 1) + 1;
  return 0;
}

SEC("struct_ops.s/init")
int upcall_init(uint64_t *context __attribute__((unused))) {
  uint32_t all = scx_bpf_nr_cpu_ids();
  int error = scx_bpf_create_dsq(SHARED, -1);

  for (uint32_t number = 0; number < CPUS && number < all && !error; number++) {
    error = scx_bpf_create_dsq(PINNED(number), -1);
    if (!error)
      error = scx_bpf_create_dsq(HELD(number), -1);
  }
  return error;
}

/* struct scx_exit_info *info */
SEC("struct_ops/exit")
int upcall_exit(uint64_t *context) {
  struct scx_exit_info *info = (struct scx_exit_info *)context[0];
  struct scheduler_end end = {};

  end.code = info->exit_code;
  end.kind = info->kind;
  bpf_probe_read_kernel_str(end.reason, sizeof(end.reason), info->reason);
  bpf_probe_read_kernel_str(end.message, sizeof(end.message), info->msg);
  bpf_ringbuf_output(&ends, &end, sizeof(end), BPF_RB_FORCE_WAKEUP);
  return 0;
}

/* What the daemon says of a process. */
struct about_process {
  int pid;
  uint32_t weight;
  uint32_t is_space;
};

SEC("syscall")
int set_process(struct about_process *about) {
  struct task_struct *task = bpf_task_from_pid(about->pid);
  struct thread *process;

  if (!task)
    return -ESRCH;
  process = of(task);
  if (process) {
    process->weight = about->weight;
    process->is_space = about->is_space;
  }
  bpf_task_release(task);
  return process ? 0 : -ENOMEM;
}

/* Nothing is said of processors that come and go: then the kernel ends the scheduler, and says that it may be loaded again. */
SEC(".struct_ops.link")
struct sched_ext_ops upcall = {
    .select_cpu = (void *)upcall_select_cpu,
    .enqueue = (void *)upcall_enqueue,
    .dispatch = (void *)upcall_dispatch,
    .running = (void *)upcall_running,
    .stopping = (void *)upcall_stopping,
    .runnable = (void *)upcall_runnable,
    .quiescent = (void *)upcall_quiescent,
    .yield = (void *)upcall_yield,
    .init_task = (void *)upcall_init_task,
    .init = (void *)upcall_init,
    .exit = (void *)upcall_exit,
    .timeout_ms = 10000,
    .name = "upcall",
};
