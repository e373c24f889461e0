/* Upcall: threads on scheduler activations. C11 or later, C++11 or later (upcall.hpp is for C++20).
 *
 * Threads that are made here, and all threads that the process makes by pthread_create(3) after upcall_start(), are
 * user-level threads: they are created, switched and synchronized without the kernel, and yet none of them takes its
 * processor along when it blocks, in whatever library or system call, or on a page fault.
 *
 * - Functions return 0, or an error number (<errno.h>), as those of pthreads do; errno is not touched. Where a
 *   function returns something else, it says so. A null pointer where there must be none is EINVAL.
 * - Everything here may be used by threads of pthreads too, natively, in one process and on one object with
 *   threads of Upcall. pthread mutexes, C11 threads, std::mutex and the like may be used in threads of Upcall.
 * - Where there can be no runtime (another processor architecture, a kernel that refuses) all works as well, on
 *   threads of pthreads.
 * - A time limit is a moment of CLOCK_MONOTONIC (struct timespec), as for pthread_cond_clockwait(3): a wait that is
 *   repeated keeps its limit. upcall_deadline() makes one of a length of time. A limit that is over already is no
 *   error by itself: what is to be had without waiting is had.
 * - Objects are opaque. They may be initialized by their _INITIALIZER or function, and may not be copied or moved
 *   afterwards. All bytes zero is what an _INITIALIZER gives.
 * - No function here is a cancellation point, and none may be called in a signal handler, but for
 *   upcall_semaphore_post() and upcall_thread_unpark().
 * - After fork(2) the child has one thread, as with pthreads, and may make others. Handles of threads and contents of
 *   channels that other threads were using are not to be used there.
 *
 * The guide is docs/c.md; each group has a manual page in section 3, beginning with upcall(3).
 */
#ifndef UPCALL_H
#define UPCALL_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#define UPCALL_STATIC_ASSERT static_assert
#define UPCALL_ALIGNAS(bytes) alignas(bytes)
#else
#define UPCALL_STATIC_ASSERT _Static_assert
#define UPCALL_ALIGNAS(bytes) _Alignas(bytes)
#endif

#define UPCALL_VERSION_MAJOR 0
#define UPCALL_VERSION_MINOR 1

/* ---- The runtime: upcall_start(3) ---- */

/* Settings. What is 0 or null is as the environment says (UPCALL_VPS, UPCALL_SLICE_US, UPCALL_POLICY, UPCALL_STATS),
 * or else as is best on this machine. Initialize with UPCALL_OPTIONS_INITIALIZER. */
struct upcall_options {
    /* sizeof(struct upcall_options): what later versions add is not read from a program of this one. */
    size_t size;
    /* Virtual processors: as many as processors are allowed, but not less than min and not more than max; both
     * from 1 to 1024, or both 0. */
    uint32_t vps_min, vps_max;
    /* How long a thread computes while others are ready, in nanoseconds: 100,000 to 1,000,000,000; 5,000,000 if not
     * said. */
    uint64_t time_slice_ns;
    /* Which ready thread runs first: "lifo", "round-robin", "fifo", "priority" (see upcall_thread_setpriority) or
     * "deadline" (see upcall_thread_setdeadline); otherwise a new thread before others of its virtual processor, until the time slice ends. */
    const char *policy;
    /* Not 0: the counters of the runtime are printed to standard error when the process ends. */
    int32_t stats;
    /* 0. */
    int32_t reserved;
    /* A policy of the program's own, instead of one by its name; or null. upcall_policy(3). */
    const struct upcall_policy *own_policy;
};

#define UPCALL_OPTIONS_INITIALIZER { sizeof(struct upcall_options), 0, 0, 0, NULL, 0, 0, NULL }

/* Starts the runtime of the process: call it first in main(), while there is one thread. That becomes the first
 * thread of the runtime, and all that are made from here on are threads of the runtime. Null options are all defaults.
 * Where there is a runtime already, that is it: of `upcall run`, with the settings of its user, or of an earlier call.
 *   EINVAL   a setting is out of its range, or a policy has another name, or there are two; nothing was done
 *   E2BIG    options of a later version, with settings that this one does not know; nothing was done
 *   EBUSY    the process has several threads already; nothing was done
 *   EALREADY an earlier call has started it with another value of a setting that these options name
 *   ENOSYS   not on this processor architecture, and not in a program that is linked with -static, built with a
 *            sanitizer, or run by valgrind
 *   EAGAIN, ENOMEM, EPERM, ...  the kernel refuses what the runtime needs (`upcall doctor` says more)
 * After an error all the functions below work on pthreads, or as threads of a runtime that a later call starts. */
int upcall_start(const struct upcall_options *options);

#define UPCALL_NATIVE 0    /* nobody: threads are the kernel's */
#define UPCALL_OWN 1       /* this library */
#define UPCALL_PRELOADED 2 /* `upcall run`, which started the program; settings are those of its user */

/* Who serves the process: one of the above. */
int upcall_served_by(void);

/* ---- Threads: upcall_thread_create(3), upcall_thread_self(3), upcall_thread_setpriority(3) ---- */

/* A thread, as pthread_t: valid until the thread is joined, or, if it is detached, until it ends. That of a thread of
 * pthreads: until that ends. Comparable by ==; null is no thread. */
typedef struct upcall_thread *upcall_thread_t;

/* Which threads are more urgent, under the policy "priority". */
#define UPCALL_PRIORITY_INHERITED 0 /* as the creator (for attributes only) */
#define UPCALL_PRIORITY_NORMAL 1    /* -20 to 19, the nice value: smaller is more urgent */
#define UPCALL_PRIORITY_REALTIME 2  /* 1 to 99, before all others: greater is more urgent */
#define UPCALL_PRIORITY_IDLE 3      /* 0: after all others */

/* Properties of a thread. Initialize with UPCALL_THREAD_ATTR_INITIALIZER. As pthread_attr_t. */
struct upcall_thread_attr {
    /* sizeof(struct upcall_thread_attr). */
    size_t size;
    /* How large its stack is at least, in bytes; 0: 256 KiB. Only what is used takes memory. Up to 16 MiB a thread
     * is cheap, beyond that it costs what pthread_create(3) costs. */
    size_t stack_size;
    /* Its name, or null. 15 bytes are kept. */
    const char *name;
    /* Not 0: nobody will join it. */
    int32_t detached;
    /* UPCALL_PRIORITY_..., and the priority. */
    int32_t priority_class;
    int32_t priority;
    /* 0. */
    int32_t reserved;
    /* A number for the program's own policy: a group, a class, whatever that makes of it. upcall_policy(3). */
    uint64_t tag;
    /* When its work must be done, in nanoseconds of CLOCK_MONOTONIC, under the policy "deadline"; 0: as its creator. */
    uint64_t deadline_ns;
};

#define UPCALL_THREAD_ATTR_INITIALIZER { sizeof(struct upcall_thread_attr), 0, NULL, 0, 0, 0, 0, 0, 0 }

/* Makes a thread that runs start(argument), and stores it in *thread (which may be null if the attributes say
 * detached). Null attributes are all defaults. The first call starts the runtime, if nobody has tried before. As
 * pthread_create(3), but cheap where a thread has ended before: its stack and identity are used again.
 *   EAGAIN   there is no memory, or no thread, to be had
 *   EINVAL   an attribute is out of its range
 *   E2BIG    attributes of a later version, with properties that this one does not know
 *   EPERM    the priority is not allowed (without the policy "priority", where a privilege is needed)
 * A C++ exception that leaves start ends the process (std::terminate); upcall.hpp hands it to join. */
int upcall_thread_create(upcall_thread_t *thread, const struct upcall_thread_attr *attributes,
                         void *(*start)(void *), void *argument);

/* What a thread gives that was ended by pthread_exit(3) or pthread_cancel(3): PTHREAD_CANCELED. What it gave to
 * pthread_exit is lost: use upcall_thread_exit(). */
#define UPCALL_CANCELED ((void *)-1)

/* Waits for a thread's end, and stores what start returned, or was given to upcall_thread_exit, in *result unless
 * that is null. The handle is not to be used any more. As pthread_join(3).
 *   EDEADLK  it is the calling thread
 *   EINVAL   it is detached, or somebody joins it; it was not made by upcall_thread_create
 *   ESRCH    null */
int upcall_thread_join(upcall_thread_t thread, void **result);

/* As upcall_thread_join, if the thread has ended; else EBUSY. pthread_tryjoin_np(3). */
int upcall_thread_tryjoin(upcall_thread_t thread, void **result);

/* Nobody will join the thread, which may be the calling one. As pthread_detach(3).
 *   EINVAL, ESRCH  as upcall_thread_join */
int upcall_thread_detach(upcall_thread_t thread);

/* Ends the calling thread, as if start had returned result: cleanup handlers, destructors of C++ objects on the
 * stack, of thread-local objects and of keys run. As pthread_exit(3), and so too in threads that were not made by
 * upcall_thread_create. Costs a shell: return where you can. */
#if defined(__cplusplus)
[[noreturn]]
#else
_Noreturn
#endif
void upcall_thread_exit(void *result);

/* The calling thread, of whatever kind. pthread_self(3). Null if there is no memory, which cannot be for a
 * thread that upcall_thread_create has made. */
upcall_thread_t upcall_thread_self(void);

/* Gives way to other threads that are ready. sched_yield(2). */
void upcall_thread_yield(void);

/* Sleeps so many nanoseconds, at least; signals do not end it. */
void upcall_thread_sleep(uint64_t ns);

/* Waits until upcall_thread_unpark is called for the calling thread; not if it was since the last time. May return
 * early.
 *   ENOMEM   as upcall_thread_self */
int upcall_thread_park(void);

/* As upcall_thread_park, until a moment.
 *   ETIMEDOUT  it came
 *   EINVAL     null, or tv_nsec is not below 1,000,000,000 */
int upcall_thread_timedpark(const struct timespec *deadline);

/* Ends the thread's upcall_thread_park, or its next one. What was done before is seen afterwards. ESRCH: null. */
int upcall_thread_unpark(upcall_thread_t thread);

/* The calling thread's name; 15 bytes are kept. pthread_setname_np(3). */
int upcall_thread_setname(const char *name);

/* Stores the name of a thread, and a zero. Empty if it has none of its own. pthread_getname_np(3).
 *   ERANGE   it needs more than size bytes: 16 are enough */
int upcall_thread_getname(upcall_thread_t thread, char *name, size_t size);

/* How urgent a thread is. Under the policy "priority" (upcall_options, UPCALL_POLICY) no thread waits while a less
 * urgent one runs, on whatever virtual processor, and equals take turns; nobody needs a privilege. Under the other
 * policy, and natively, this is sched_setscheduler(2) and setpriority(2), with what they allow.
 *   EINVAL   no such class, or the priority is not in its range
 *   EPERM    not allowed: see above
 *   ESRCH    null, or it has ended */
int upcall_thread_setpriority(upcall_thread_t thread, int priority_class, int priority);

/* How urgent it is; either pointer may be null. */
int upcall_thread_getpriority(upcall_thread_t thread, int *priority_class, int *priority);

/* The calling thread's work must be done by then (CLOCK_MONOTONIC), as a periodic thread says at the beginning of each
 * period: under the policy "deadline" the nearest one runs first. Nothing happens under other policies.
 *   EINVAL   null, or no time */
int upcall_thread_setdeadline(const struct timespec *deadline);

/* ---- Policies of the program's own: upcall_policy(3) ---- */

/* The threads that a policy may ask about, while one of its functions runs and not afterwards. */
struct upcall_policy_threads;

#define UPCALL_RANK_COMMON (UINT64_C(1) << 63) /* what a thread has until somebody says otherwise */
#define UPCALL_RANK_HELD UINT64_MAX            /* a thread that does not run, though it is ready */

/* Why a thread is ready. */
#define UPCALL_READY_CREATED 0   /* it is new */
#define UPCALL_READY_UNBLOCKED 1 /* it has waited, in the program or in the kernel */
#define UPCALL_READY_YIELDED 2   /* it has let others go first */
#define UPCALL_READY_PREEMPTED 3 /* it was stopped in favour of another, or at the end of its time slice */

/* A policy: functions that are told of what happens to threads, and answer with ranks; the smaller the more urgent, and
 * equals take turns. A thread of the library's own calls them, one after another: they may allocate and lock, but
 * nothing waits for them. Until a thread has been given a rank it has its creator's. What takes longer than a time
 * slice runs after all other threads meanwhile. Only `ready` must be there. The table is copied; the context must
 * stay for as long as the process lives. Initialize with UPCALL_POLICY_INITIALIZER. */
struct upcall_policy {
    /* sizeof(struct upcall_policy). */
    size_t size;
    /* Passed to all functions. */
    void *context;
    /* A thread is ready, for one of the reasons UPCALL_READY_...: its rank from here on. */
    uint64_t (*ready)(void *context, struct upcall_policy_threads *threads, uint64_t thread, int why);
    /* A thread waits, in the program or in the kernel. */
    void (*blocked)(void *context, struct upcall_policy_threads *threads, uint64_t thread);
    /* A thread has ended: its number is not used again. */
    void (*ended)(void *context, struct upcall_policy_threads *threads, uint64_t thread);
    /* A virtual processor has nothing to run. */
    void (*idle)(void *context, struct upcall_policy_threads *threads);
    /* So many nanoseconds have passed since the last time; never if 0. */
    void (*tick)(void *context, struct upcall_policy_threads *threads);
    uint64_t period_ns;
};

#define UPCALL_POLICY_INITIALIZER { sizeof(struct upcall_policy), NULL, NULL, NULL, NULL, NULL, NULL, 0 }

/* Gives a thread another rank, which counts as soon as the function of the policy returns: a thread that runs gives
 * way if it must.
 *   ESRCH    no such thread lives, as far as the policy was told */
int upcall_policy_setrank(struct upcall_policy_threads *threads, uint64_t thread, uint64_t rank);

/* Stores the number that the program gave the thread (struct upcall_thread_attr); 0 if none.
 *   ESRCH    no such thread lives, as far as the policy was told */
int upcall_policy_gettag(struct upcall_policy_threads *threads, uint64_t thread, uint64_t *tag);

/* ---- Time ---- */

/* The moment so many nanoseconds from now, by CLOCK_MONOTONIC. */
int upcall_deadline(struct timespec *deadline, uint64_t ns);

/* ---- Mutexes: upcall_mutex_lock(3) ---- */

/* As PTHREAD_MUTEX_NORMAL: who takes it again waits for ever. Not fair, not robust, of one process. One atomic
 * operation each to take and to free it while nobody else wants it. The last thread that takes and frees it may use its
 * memory for anything then, also while another thread has not returned from upcall_mutex_unlock yet. Under the policies
 * "priority" and "deadline" and one of the program's own, who waits lends its urgency to who has it; there the memory
 * must stay until each upcall_mutex_unlock has returned. */
typedef struct {
    uint32_t upcall_private[4];
} upcall_mutex_t;
#define UPCALL_MUTEX_INITIALIZER { { 0, 0, 0, 0 } }

int upcall_mutex_init(upcall_mutex_t *mutex);
/* EBUSY: somebody has it. */
int upcall_mutex_destroy(upcall_mutex_t *mutex);
int upcall_mutex_lock(upcall_mutex_t *mutex);
/* EBUSY: somebody has it. */
int upcall_mutex_trylock(upcall_mutex_t *mutex);
/* ETIMEDOUT; EINVAL as upcall_thread_timedpark. pthread_mutex_clocklock(3). */
int upcall_mutex_timedlock(upcall_mutex_t *mutex, const struct timespec *deadline);
/* EPERM: nobody has it. That somebody else has it is not noticed. */
int upcall_mutex_unlock(upcall_mutex_t *mutex);

/* ---- Conditions: upcall_cond_wait(3) ---- */

/* The memory of a condition must stay until each call with it has returned, also in the threads that were woken. */
typedef struct {
    uint32_t upcall_private[4];
} upcall_cond_t;
#define UPCALL_COND_INITIALIZER { { 0, 0, 0, 0 } }

int upcall_cond_init(upcall_cond_t *cond);
/* EBUSY: somebody waits. */
int upcall_cond_destroy(upcall_cond_t *cond);
/* Frees the mutex, waits, and takes it again; may return without a signal.
 *   EPERM    nobody has the mutex */
int upcall_cond_wait(upcall_cond_t *cond, upcall_mutex_t *mutex);
/* ETIMEDOUT: the moment came, and the mutex was taken again. pthread_cond_clockwait(3). */
int upcall_cond_timedwait(upcall_cond_t *cond, upcall_mutex_t *mutex, const struct timespec *deadline);
/* Wake one, or all. What the condition is about must have been changed with the mutex held; these may be called after
 * it was freed. */
int upcall_cond_signal(upcall_cond_t *cond);
int upcall_cond_broadcast(upcall_cond_t *cond);

/* ---- Locks of readers and writers: upcall_rwlock_rdlock(3) ---- */

/* Readers and writers take turns: neither starve. Who reads already may not read again: a writer may wait between. The
 * memory of a lock must stay until each call with it has returned. */
typedef struct {
    uint32_t upcall_private[4];
} upcall_rwlock_t;
#define UPCALL_RWLOCK_INITIALIZER { { 0, 0, 0, 0 } }

int upcall_rwlock_init(upcall_rwlock_t *rwlock);
/* EBUSY: somebody has it. */
int upcall_rwlock_destroy(upcall_rwlock_t *rwlock);
/* EAGAIN: 268,435,456 readers have it; so too below. */
int upcall_rwlock_rdlock(upcall_rwlock_t *rwlock);
/* EBUSY: a writer has it, or waits. */
int upcall_rwlock_tryrdlock(upcall_rwlock_t *rwlock);
int upcall_rwlock_timedrdlock(upcall_rwlock_t *rwlock, const struct timespec *deadline);
int upcall_rwlock_wrlock(upcall_rwlock_t *rwlock);
/* EBUSY: somebody has it. */
int upcall_rwlock_trywrlock(upcall_rwlock_t *rwlock);
int upcall_rwlock_timedwrlock(upcall_rwlock_t *rwlock, const struct timespec *deadline);
/* EPERM: nobody has it. */
int upcall_rwlock_unlock(upcall_rwlock_t *rwlock);

/* ---- Semaphores: upcall_semaphore_wait(3) ---- */

/* As sem_t, of one process; but errors are returned. A thread that has waited for the last time may use the memory for
 * anything then, also while another thread has not returned from upcall_semaphore_post yet. */
typedef struct {
    UPCALL_ALIGNAS(8) uint32_t upcall_private[4];
} upcall_semaphore_t;
#define UPCALL_SEMAPHORE_INITIALIZER(value) { { (value), 0, 0, 0 } }

int upcall_semaphore_init(upcall_semaphore_t *semaphore, uint32_t value);
/* EBUSY: somebody waits. */
int upcall_semaphore_destroy(upcall_semaphore_t *semaphore);
int upcall_semaphore_wait(upcall_semaphore_t *semaphore);
/* EAGAIN: the value is 0. */
int upcall_semaphore_trywait(upcall_semaphore_t *semaphore);
/* ETIMEDOUT; EINVAL as upcall_thread_timedpark. sem_clockwait(3). */
int upcall_semaphore_timedwait(upcall_semaphore_t *semaphore, const struct timespec *deadline);
/* EOVERFLOW: the value is 4,294,967,295. */
int upcall_semaphore_post(upcall_semaphore_t *semaphore);
/* The value at some moment. */
int upcall_semaphore_getvalue(upcall_semaphore_t *semaphore, uint32_t *value);

/* ---- Barriers: upcall_barrier_wait(3) ---- */

/* The memory of a barrier must stay until upcall_barrier_wait has returned in all threads. upcall_barrier_destroy does not
 * wait for those that have met and have not returned yet. */
typedef struct {
    UPCALL_ALIGNAS(8) uint32_t upcall_private[8];
} upcall_barrier_t;

/* So many threads meet. EINVAL: none. */
int upcall_barrier_init(upcall_barrier_t *barrier, uint32_t count);
/* EBUSY: some wait. */
int upcall_barrier_destroy(upcall_barrier_t *barrier);
/* Waits until all are there, and again. One of them gets UPCALL_BARRIER_SERIAL_THREAD, the others 0. EINVAL: it is
 * not initialized, or was destroyed. */
int upcall_barrier_wait(upcall_barrier_t *barrier);
#define UPCALL_BARRIER_SERIAL_THREAD (-1)

/* ---- Channels: upcall_channel_create(3) ---- */

/* A queue of elements of one size, which any threads send and receive: they are copied in and out. */
typedef struct upcall_channel upcall_channel_t;

/* The capacity of a channel without one: it grows, and send never waits. */
#define UPCALL_UNBOUNDED SIZE_MAX

/* A channel for elements of so many bytes (0 too: a channel of mere signals), of which so many wait in it.
 *   EINVAL   capacity 0: there are no channels without room for one element
 *   ENOMEM   there is no memory, or not in this world */
int upcall_channel_create(upcall_channel_t **channel, size_t element_size, size_t capacity);
/* Gives its memory back; elements in it are lost. Null is nothing. Each other call with the channel must have returned.
 *   EBUSY    some threads wait in it */
int upcall_channel_destroy(upcall_channel_t *channel);
/* Nothing can be sent any more; what is there can be received. Wakes all that wait. EALREADY: it was closed. */
int upcall_channel_close(upcall_channel_t *channel);
/* Copies an element into it; waits while it is full.
 *   EPIPE    it is closed
 *   ENOMEM   it is unbounded, and there is no memory
 * The try forms: EAGAIN where the others would wait. The timed forms: ETIMEDOUT; EINVAL as upcall_thread_timedpark. */
int upcall_channel_send(upcall_channel_t *channel, const void *element);
int upcall_channel_trysend(upcall_channel_t *channel, const void *element);
int upcall_channel_timedsend(upcall_channel_t *channel, const void *element, const struct timespec *deadline);
/* Copies the oldest element out of it; waits while there is none.
 *   EPIPE    it is closed, and there is none */
int upcall_channel_receive(upcall_channel_t *channel, void *element);
int upcall_channel_tryreceive(upcall_channel_t *channel, void *element);
int upcall_channel_timedreceive(upcall_channel_t *channel, void *element, const struct timespec *deadline);
/* How many elements are in it at some moment. */
int upcall_channel_length(upcall_channel_t *channel, size_t *length);

/* ---- Once: upcall_once(3) ---- */

/* The memory must stay until each call with it has returned. */
typedef struct {
    uint32_t upcall_private[2];
} upcall_once_t;
#define UPCALL_ONCE_INITIALIZER { { 0, 0 } }

/* Calls init(argument) unless that has succeeded before; who comes meanwhile waits. init returns 0, or an error
 * that the caller gets, and the next one tries again. As pthread_once(3), which has neither argument nor failure. init
 * must return (not throw, not exit), and may not come here
 * again with the same object. */
int upcall_once(upcall_once_t *once, int (*init)(void *), void *argument);

/* ---- Keys: upcall_key_create(3) ---- */

/* A name for a value that each thread has of its own. Unlike a value of pthread_setspecific(3), one of these leaves
 * the thread's shell to the next thread, so that threads stay cheap (upcall_key_create(3) says by how much). So do C11
 * _Thread_local and C++ thread_local, which are better where they can be had. */
typedef uint32_t upcall_key_t;
#define UPCALL_KEYS_MAX 1024

/* Values are null until they are set. When a thread ends whose value is not null, the value becomes null and destructor,
 * unless it is null, is called with what it was; again, up to four times, where destructors have set values. For the
 * first thread that happens at exit(3).
 *   EAGAIN   there are UPCALL_KEYS_MAX keys */
int upcall_key_create(upcall_key_t *key, void (*destructor)(void *));
/* Values are forgotten; no destructor is called. EINVAL: there is no such key. */
int upcall_key_delete(upcall_key_t key);
/* The calling thread's value; null if there is no such key. */
void *upcall_getspecific(upcall_key_t key);
/*   EINVAL   there is no such key
 *   ENOMEM   there is no memory; not where a value was set before */
int upcall_setspecific(upcall_key_t key, const void *value);

UPCALL_STATIC_ASSERT(sizeof(struct upcall_options) == 48 || sizeof(void *) != 8, "upcall_options");
UPCALL_STATIC_ASSERT(sizeof(struct upcall_thread_attr) == 56 || sizeof(void *) != 8, "upcall_thread_attr");
UPCALL_STATIC_ASSERT(sizeof(struct upcall_policy) == 64 || sizeof(void *) != 8, "upcall_policy");
UPCALL_STATIC_ASSERT(sizeof(upcall_mutex_t) == 16, "upcall_mutex_t");
UPCALL_STATIC_ASSERT(sizeof(upcall_cond_t) == 16, "upcall_cond_t");
UPCALL_STATIC_ASSERT(sizeof(upcall_rwlock_t) == 16, "upcall_rwlock_t");
UPCALL_STATIC_ASSERT(sizeof(upcall_semaphore_t) == 16, "upcall_semaphore_t");
UPCALL_STATIC_ASSERT(sizeof(upcall_barrier_t) == 32, "upcall_barrier_t");
UPCALL_STATIC_ASSERT(sizeof(upcall_once_t) == 8, "upcall_once_t");

#ifdef __cplusplus
}
#endif

#endif /* UPCALL_H */
