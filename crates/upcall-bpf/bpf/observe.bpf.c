/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Writes what the kernel's scheduler does with the kernel threads of observed processes into their pages
 * (struct upcall_observed). It only writes memory: it wakes nobody, sends nothing, and takes no lock.
 *
 * 1. `members` tells most processes apart from observed ones by one byte. Several processes may share it.
 * 2. `spaces` has the page of a process. The daemon puts it there before it hands it out, and takes it away.
 * 3. A page whose alive word is 0 is not written any more. The word is cleared here when the process executes another
 *    program and when its last kernel thread ends: the page's reader has nothing to do with what comes then.
 * 4. The word `now` of a slot is written last. Events of one kernel thread come in their order: the scheduler holds locks.
 *    Two kernel threads of one slot may write it at once. Then their other fields are mixed, and the word is one of both.
 */
#include "kernel.h"
#include "helpers.h"
#include "upcall/abi.h"

#define STATE_STOPPED (0x4 | 0x8) /* __TASK_STOPPED, __TASK_TRACED */
#define STATE_DEAD (0x10 | 0x20 | 0x80) /* EXIT_DEAD, EXIT_ZOMBIE, TASK_DEAD */
#define MEMBERS 65536
#define SPACES 4096

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* For each process number modulo its length: how many observed ones there are. Written by the daemon. */
uint8_t members[MEMBERS];

struct page_map {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __uint(key_size, sizeof(uint32_t));
  __uint(value_size, sizeof(struct upcall_observed));
};

/* So that the object says what it takes the layout for: the daemon's tests compare. */
const struct upcall_observed *layout __attribute__((unused));

struct {
  __uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
  __uint(max_entries, SPACES);
  __type(key, uint32_t);
  __array(values, struct page_map);
} spaces SEC(".maps");

static __always_inline struct upcall_observed *page_of(uint32_t tgid) {
  uint32_t zero = 0;
  struct upcall_observed *page;
  void *map;

  if (!members[tgid % MEMBERS])
    return 0;
  map = bpf_map_lookup_elem(&spaces, &tgid);
  if (!map)
    return 0;
  page = bpf_map_lookup_elem(map, &zero);
  return page && page->alive ? page : 0;
}

static __always_inline struct upcall_observed_slot *slot_of(struct upcall_observed *page, uint32_t tid) {
  return &page->slots[tid % UPCALL_OBSERVED_SLOTS];
}

static __always_inline void write_now(struct upcall_observed_slot *slot, uint32_t tid, uint64_t cpu, uint64_t state,
                                      uint64_t reason) {
  uint64_t now = tid | state << 32 | reason << 40 | cpu << 48;

  barrier();
  *(volatile uint64_t *)&slot->now = now;
}

static __always_inline void stops(struct upcall_observed *page, struct task_struct *task, struct task_struct *next,
                                  int preempted, uint32_t cpu) {
  uint32_t tid = task->pid;
  unsigned int sleeps = preempted ? 0 : task->__state;
  struct upcall_observed_slot *slot = slot_of(page, tid);
  struct pt_regs *regs;
  long nr;

  if (!sleeps) {
    if (next->tgid == task->tgid) {
      write_now(slot, tid, cpu, UPCALL_OBSERVED_READY, UPCALL_REASON_GAVE_WAY);
    } else {
      slot->preempted++;
      write_now(slot, tid, cpu, UPCALL_OBSERVED_READY, UPCALL_REASON_PREEMPTED);
    }
    return;
  }
  if (sleeps & STATE_DEAD) {
    write_now(slot, 0, 0, UPCALL_OBSERVED_UNKNOWN, UPCALL_REASON_NONE);
    return;
  }
  if (sleeps & STATE_STOPPED) {
    write_now(slot, tid, cpu, UPCALL_OBSERVED_STOPPED, UPCALL_REASON_NONE);
    return;
  }
  slot->blocks++;
  regs = (struct pt_regs *)bpf_task_pt_regs(task);
  nr = regs->orig_ax;
  if (nr < 0) {
    write_now(slot, tid, cpu, UPCALL_OBSERVED_BLOCKED, UPCALL_REASON_FAULT);
  } else {
    slot->nr = nr;
    write_now(slot, tid, cpu, UPCALL_OBSERVED_BLOCKED, UPCALL_REASON_CALL);
  }
}

static __always_inline void runs(struct upcall_observed *page, struct task_struct *task, uint32_t cpu) {
  uint32_t tid = task->pid;
  struct upcall_observed_slot *slot = slot_of(page, tid);

  slot->switches++;
  write_now(slot, tid, cpu, UPCALL_OBSERVED_RUNNING, UPCALL_REASON_NONE);
}

/* bool preempt, struct task_struct *prev, struct task_struct *next. Later kernels pass the state of `prev`, too: it is read
 * here, since those before 5.18 do not, and it cannot become 0 meanwhile: who wakes it waits until it has left. */
SEC("tp_btf/sched_switch")
int on_switch(uint64_t *context) {
  struct task_struct *prev = (struct task_struct *)context[1];
  struct task_struct *next = (struct task_struct *)context[2];
  uint32_t before = prev->tgid, after = next->tgid;
  struct upcall_observed *page = page_of(before);
  uint32_t cpu;

  if (page) {
    cpu = bpf_get_smp_processor_id();
    stops(page, prev, next, context[0] & 1, cpu);
    if (after == before) {
      runs(page, next, cpu);
      return 0;
    }
  }
  page = page_of(after);
  if (page)
    runs(page, next, bpf_get_smp_processor_id());
  return 0;
}

SEC("tp_btf/sched_wakeup")
int on_wakeup(uint64_t *context) {
  struct task_struct *task = (struct task_struct *)context[0];
  struct upcall_observed *page = page_of(task->tgid);
  struct upcall_observed_slot *slot;
  uint32_t tid;
  uint64_t now;

  if (!page)
    return 0;
  tid = task->pid;
  slot = slot_of(page, tid);
  now = *(volatile uint64_t *)&slot->now;
  if ((uint32_t)now == tid && (uint8_t)(now >> 32) >= UPCALL_OBSERVED_BLOCKED)
    write_now(slot, tid, now >> 48, UPCALL_OBSERVED_READY, UPCALL_REASON_WOKEN);
  return 0;
}

/* unsigned long address, struct pt_regs *regs, unsigned long error_code. Not on every processor architecture. */
SEC("tp_btf/page_fault_user")
int on_fault(uint64_t *context) {
  uint64_t both = bpf_get_current_pid_tgid();
  struct upcall_observed *page = page_of(both >> 32);

  if (page)
    slot_of(page, both)->address = context[0];
  return 0;
}

SEC("tp_btf/sched_process_exec")
int on_exec(uint64_t *context) {
  struct task_struct *task = (struct task_struct *)context[0];
  struct upcall_observed *page = page_of(task->tgid);

  if (page)
    page->alive = 0;
  return 0;
}

SEC("tp_btf/sched_process_exit")
int on_exit(uint64_t *context) {
  struct task_struct *task = (struct task_struct *)context[0];
  struct upcall_observed *page = page_of(task->tgid);

  if (page && task->signal->live.counter == 0)
    page->alive = 0;
  return 0;
}

/* The daemon takes the process out: it calls this, since it may not write the page itself. */
SEC("syscall")
int end_page(uint32_t *process) {
  struct upcall_observed *page = page_of(*process);

  if (page)
    page->alive = 0;
  return 0;
}
