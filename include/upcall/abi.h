/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a program and the daemon (upcalld) share: two pages for each address space, and the messages
 * of the socket over which the pages are handed out.
 *
 * 1. struct upcall_told is what the daemon tells the space. The daemon alone writes it. The descriptor that a
 *    program gets can only be mapped read-only (F_SEAL_FUTURE_WRITE).
 * 2. struct upcall_said is what the program says. Every word of it is a hint: the daemon reads it as a number, bounds
 *    it at each use, and decides nothing by it that would harm another space.
 * 3. struct upcall_observed is what the kernel's scheduler does with the space's kernel threads. BPF programs of the
 *    daemon write it, and the program maps it read-only. It is there only if the daemon is root's.
 * 4. The files of told and said have a fixed size (F_SEAL_SHRINK, F_SEAL_GROW): no access raises SIGBUS.
 *
 * A processor is a bit of a set, by its number modulo UPCALL_ABI_PROCESSORS. Times are nanoseconds of CLOCK_MONOTONIC.
 * A field of these structures never changes its meaning or place within one version.
 *
 * The same layout in Rust is crates/upcall-abi. Both assert these sizes and offsets.
 */
#ifndef UPCALL_ABI_H
#define UPCALL_ABI_H

#ifdef __bpf__
/* The BPF object has no C library. */
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
#define static_assert _Static_assert
#define offsetof(type, field) __builtin_offsetof(type, field)
#else
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#endif

#define UPCALL_ABI_MAGIC 0x6c6c616370750001ull
#define UPCALL_ABI_VERSION 1u
#define UPCALL_ABI_WORDS 4
#define UPCALL_ABI_PROCESSORS 256u
#define UPCALL_ABI_MOST_SHARE 10u

/* What each page begins with. */
struct upcall_head {
  uint64_t magic;   /* UPCALL_ABI_MAGIC */
  uint32_t version; /* UPCALL_ABI_VERSION */
  uint32_t size;    /* of the whole structure, in bytes */
};

/* From the daemon. */
struct upcall_told {
  struct upcall_head head;
  uint64_t alive;   /* the daemon's generation; 0: it has ended, and what it told does not hold any more */
  uint32_t changes; /* counts what was told; a program that has acted on it says so */
  uint32_t wanted;  /* bits of enum upcall_wanted */
  uint64_t has[UPCALL_ABI_WORDS]; /* the processors that the space may use */
  uint64_t truce_until;  /* when the last truce ends that concerned the space: until then none waits for another */
  uint64_t truce_length; /* how long that truce was to be */
  uint64_t leaves_at;    /* the warning: when it is to lose all processors that others want; 0: nothing is known of that */
};

/* Bits of upcall_told.wanted. */
enum upcall_wanted {
  UPCALL_WANTED = 1,      /* another space waits for a processor of this one */
  UPCALL_WANTED_LENDS = 2 /* those that wait lend their weight: what ordinary programs take is made up for. No truce is needed */
};

/* From the program. */
struct upcall_said {
  struct upcall_head head;
  uint32_t bell;    /* rises when there may be news; the space's kernel threads sleep on it (futex(2), shared) */
  uint32_t changes; /* the last upcall_told.changes that was acted on */
  uint64_t wants[UPCALL_ABI_WORDS]; /* processors on which the space computes, or would if it had them */
  uint64_t uses[UPCALL_ABI_WORDS];  /* those of them on which it runs now */
  uint64_t truce_until;  /* when the truce ends that the space asks for: programs that take no turns compete with it */
  uint64_t truce_length; /* how long that truce was to be */
  uint32_t adapts;       /* the fewest processors with which it goes on while it wants more; 0: it needs all at once */
  uint32_t share;        /* the share of the time for which it asks, 1 to UPCALL_ABI_MOST_SHARE; 0: what is configured */
  uint64_t may[UPCALL_ABI_WORDS]; /* where its kernel threads may run; who may not run everywhere does not adapt */
};

/* A kernel thread has the slot of its id modulo this. Those of one slot overwrite each other. */
#define UPCALL_OBSERVED_SLOTS 256

/* What a kernel thread is doing. */
enum upcall_observed_state {
  UPCALL_OBSERVED_UNKNOWN = 0,
  UPCALL_OBSERVED_RUNNING = 1, /* it has a processor */
  UPCALL_OBSERVED_READY = 2,   /* it could run: it was preempted, or woken, and has no processor */
  UPCALL_OBSERVED_BLOCKED = 3,
  UPCALL_OBSERVED_STOPPED = 4 /* by a signal, or by who traces it */
};

/* Why. */
enum upcall_observed_reason {
  UPCALL_REASON_NONE = 0,
  UPCALL_REASON_CALL = 1,      /* blocked in the system call upcall_observed_slot.nr */
  UPCALL_REASON_FAULT = 2,     /* blocked outside of any system call: a page fault. Of which address: .address */
  UPCALL_REASON_PREEMPTED = 3, /* ready: another space's kernel thread runs in its place */
  UPCALL_REASON_GAVE_WAY = 4,  /* ready: one of its own space runs in its place */
  UPCALL_REASON_WOKEN = 5      /* ready: it was blocked */
};

/* A kernel thread. */
struct upcall_observed_slot {
  uint64_t now;       /* its id, from bit 48 its processor, from bit 32 its state, from bit 40 the reason; written at once, last */
  uint32_t nr;        /* the system call in which it blocked last */
  uint32_t switches;  /* counts the times that it got a processor */
  uint64_t address;   /* of its last page fault, if the kernel tells of those */
  uint32_t blocks;    /* counts the times that it blocked */
  uint32_t preempted; /* counts the times that another space's kernel thread took its processor */
  uint64_t reserved[4];
};

/* What the kernel does with the kernel threads of a space. */
struct upcall_observed {
  struct upcall_head head;
  uint64_t alive; /* the daemon's generation; 0: nobody writes here any more. A daemon that was killed leaves it */
  uint64_t reserved[5];
  struct upcall_observed_slot slots[UPCALL_OBSERVED_SLOTS];
};

/* What a message asks for. */
enum upcall_ask {
  UPCALL_ASK_JOIN = 1, /* hand out the pages; answered by struct upcall_answer. Afterwards the program is silent */
  UPCALL_ASK_LIST = 2, /* which spaces are there; answered by an upcall_answer, and as many struct upcall_row */
  UPCALL_ASK_OBSERVE = 3 /* hand out the page of what the kernel does; answered by struct upcall_answer */
};

/* A message to the daemon. */
struct upcall_message {
  uint64_t magic;
  uint32_t version;
  uint32_t ask; /* enum upcall_ask */
};

/* How the daemon answers. */
enum upcall_status {
  UPCALL_STATUS_OK = 0,
  UPCALL_STATUS_VERSION = 1, /* the daemon has another version, which is in the answer */
  UPCALL_STATUS_FULL = 2,    /* the user has as many spaces as one may have */
  UPCALL_STATUS_NONSENSE = 3, /* not a message of this interface */
  UPCALL_STATUS_NOT_HERE = 4  /* this daemon does not do that, or not for this process */
};

/*
 * The answer to UPCALL_ASK_JOIN carries three descriptors (SCM_RIGHTS): upcall_told, upcall_said, and an eventfd(2).
 * The program adds to the latter when it has changed what it says. Nobody reads it. That to UPCALL_ASK_OBSERVE carries
 * one: a map of BPF, which is mapped read-only.
 */
struct upcall_answer {
  uint64_t magic;
  uint32_t version;
  uint32_t status; /* enum upcall_status */
  uint64_t generation;
  uint32_t count; /* rows that follow */
  uint32_t flags; /* UPCALL_ANSWER_... */
};

/* The daemon's scheduler (sched_ext) has all kernel threads at this moment. */
#define UPCALL_ANSWER_SCHEDULES 1

/* A space, as UPCALL_ASK_LIST tells of it. One message each. */
struct upcall_row {
  uint32_t pid;
  uint32_t state; /* enum upcall_state */
  uint64_t since; /* when that state began */
  uint64_t wants[UPCALL_ABI_WORDS];
  uint64_t has[UPCALL_ABI_WORDS];
  uint32_t share; /* of the time, as the daemon counts it */
  uint32_t user;  /* whose it is */
};

/* What a space is doing. */
enum upcall_state {
  UPCALL_STATE_RESTING = 0, /* it keeps no processor in continuous use */
  UPCALL_STATE_ON = 1,      /* it computes */
  UPCALL_STATE_WAITING = 2, /* it would compute, and others have its processors */
  UPCALL_STATE_AWAY = 3     /* it did not do what it was told, and is left to the kernel */
};

#define UPCALL_ABI_AT(type, field, at) \
  static_assert(offsetof(struct type, field) == (at), #type "." #field " is elsewhere")
#define UPCALL_ABI_SIZE(type, size) static_assert(sizeof(struct type) == (size), #type " has another size")

UPCALL_ABI_SIZE(upcall_head, 16);
UPCALL_ABI_AT(upcall_head, version, 8);
UPCALL_ABI_AT(upcall_head, size, 12);
UPCALL_ABI_SIZE(upcall_told, 88);
UPCALL_ABI_AT(upcall_told, alive, 16);
UPCALL_ABI_AT(upcall_told, changes, 24);
UPCALL_ABI_AT(upcall_told, wanted, 28);
UPCALL_ABI_AT(upcall_told, has, 32);
UPCALL_ABI_AT(upcall_told, truce_until, 64);
UPCALL_ABI_AT(upcall_told, truce_length, 72);
UPCALL_ABI_AT(upcall_told, leaves_at, 80);
UPCALL_ABI_SIZE(upcall_said, 144);
UPCALL_ABI_AT(upcall_said, bell, 16);
UPCALL_ABI_AT(upcall_said, changes, 20);
UPCALL_ABI_AT(upcall_said, wants, 24);
UPCALL_ABI_AT(upcall_said, uses, 56);
UPCALL_ABI_AT(upcall_said, truce_until, 88);
UPCALL_ABI_AT(upcall_said, truce_length, 96);
UPCALL_ABI_AT(upcall_said, adapts, 104);
UPCALL_ABI_AT(upcall_said, share, 108);
UPCALL_ABI_AT(upcall_said, may, 112);
UPCALL_ABI_SIZE(upcall_observed_slot, 64);
UPCALL_ABI_AT(upcall_observed_slot, nr, 8);
UPCALL_ABI_AT(upcall_observed_slot, switches, 12);
UPCALL_ABI_AT(upcall_observed_slot, address, 16);
UPCALL_ABI_AT(upcall_observed_slot, blocks, 24);
UPCALL_ABI_AT(upcall_observed_slot, preempted, 28);
UPCALL_ABI_SIZE(upcall_observed, 16448);
UPCALL_ABI_AT(upcall_observed, alive, 16);
UPCALL_ABI_AT(upcall_observed, slots, 64);
UPCALL_ABI_SIZE(upcall_message, 16);
UPCALL_ABI_AT(upcall_message, ask, 12);
UPCALL_ABI_SIZE(upcall_answer, 32);
UPCALL_ABI_AT(upcall_answer, status, 12);
UPCALL_ABI_AT(upcall_answer, generation, 16);
UPCALL_ABI_AT(upcall_answer, count, 24);
UPCALL_ABI_AT(upcall_answer, flags, 28);
UPCALL_ABI_SIZE(upcall_row, 88);
UPCALL_ABI_AT(upcall_row, since, 8);
UPCALL_ABI_AT(upcall_row, wants, 16);
UPCALL_ABI_AT(upcall_row, has, 48);
UPCALL_ABI_AT(upcall_row, share, 80);
UPCALL_ABI_AT(upcall_row, user, 84);

#endif
