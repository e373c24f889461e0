/* Upcall: threads on scheduler activations. C11 or later, C++11 or later (upcall.hpp is for C++20).
 *
 * This library makes user-level threads: threads that are created, switched and synchronized without the kernel.
 * After upcall_start() all threads that the process makes by pthread_create(3) are user-level threads, too. When one
 * of them blocks, in any library or system call or on a page fault, another thread gets its processor.
 *
 * - Functions return 0 or an error number (<errno.h>), as those of pthreads do. They do not change errno. A function
 *   that returns something else says so. A null pointer is EINVAL, unless null is allowed.
 * - Threads of pthreads may use everything here too, natively, in one process and on one object with threads of
 *   Upcall. Threads of Upcall may use pthread mutexes, C11 threads, std::mutex and the like.
 * - Where there can be no runtime (another processor architecture, a kernel that refuses) everything works on threads
 *   of pthreads.
 * - A time limit is a moment of CLOCK_MONOTONIC (struct timespec), as for pthread_cond_clockwait(3). A wait that is
 *   repeated keeps its limit. upcall_deadline() makes a limit from a length of time. A limit that has passed is not
 *   an error: a call that need not wait succeeds.
 * - Objects are opaque. Initialize them by their _INITIALIZER or function. Do not copy or move them afterwards. An
 *   _INITIALIZER without arguments gives an object whose bytes are all zero.
 * - No function here is a cancellation point. A signal handler may call upcall_semaphore_post() and
 *   upcall_thread_unpark(), and no other function.
 * - After fork(2) the child has one thread, as with pthreads, and may make others. It must not use handles of
 *   threads, or contents of channels that other threads were using.
 *
 * The guide is docs/c.md. Each group of functions has a manual page in section 3, beginning with upcall(3). */
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

/* Settings. A member that is 0 or null means: what the environment says (UPCALL_VPS, UPCALL_SLICE_US, UPCALL_POLICY,
 * UPCALL_STATS, UPCALL_TRACE), or else what is best on this machine. Initialize with UPCALL_OPTIONS_INITIALIZER. */
struct upcall_options {
    /* sizeof(struct upcall_options). A later version of the library reads only these members from this program. */
    size_t size;
    /* Virtual processors: the number of allowed processors, but at least min and at most max. Both from 1 to 1024, or
     * both 0. */
    uint32_t vps_min, vps_max;
    /* How long a thread computes while others are ready, in nanoseconds: 100,000 to 1,000,000,000. The default is
     * 4,000,000. */
    uint64_t time_slice_ns;
    /* Which ready thread runs first: "lifo", "round-robin", "fifo", "priority" (see upcall_thread_setpriority) or
     * "deadline" (see upcall_thread_setdeadline). By default a new thread runs before the others of its virtual
     * processor, until the time slice ends. */
    const char *policy;
    /* Not 0: the runtime prints its counters to standard error when the process ends. */
    int32_t stats;
    /* 0. */
    int32_t reserved;
    /* A policy of the program's own, instead of a policy's name; or null. upcall_policy(3). */
    const struct upcall_policy *own_policy;
    /* A directory, as an absolute path, in which the runtime makes a file with its last events, for `upcall trace`; or null.
     * If there can be no file, that is said on standard error. */
    const char *trace;
};

#define UPCALL_OPTIONS_INITIALIZER { sizeof(struct upcall_options), 0, 0, 0, NULL, 0, 0, NULL, NULL }

/* Starts the runtime of the process. Call it first in main(), while there is one thread. That thread becomes the
 * first thread of the runtime. All threads that the process makes afterwards are threads of the runtime. Null options
 * are all defaults. If there is a runtime already, the call succeeds and that runtime stays: the one of `upcall run`,
 * with the settings of its user, or the one of an earlier call.
 *   EINVAL   a setting is out of its range, a policy has another name, or there are two policies; nothing was done
 *   E2BIG    the options are of a later version and have settings that this one does not know; nothing was done
 *   EBUSY    the process has several threads already; nothing was done
 *   EALREADY an earlier call has started the runtime with another value of a setting that these options name
 *   ENOSYS   there is no runtime on this processor architecture, or in a program that is linked with -static, built
 *            with a sanitizer, or run by valgrind
 *   EAGAIN, ENOMEM, EPERM, ...  the kernel refuses what the runtime needs (`upcall doctor` says more)
 * After an error all the functions below work on pthreads, or as threads of a runtime that a later call starts. */
int upcall_start(const struct upcall_options *options);

#define UPCALL_NATIVE 0    /* threads are the kernel's */
#define UPCALL_OWN 1       /* this library serves the process */
#define UPCALL_PRELOADED 2 /* `upcall run`, which started the program; the settings are those of its user */

/* Returns which runtime serves the process: one of the above. */
int upcall_served_by(void);

/* ---- Threads: upcall_thread_create(3), upcall_thread_self(3), upcall_thread_setpriority(3) ---- */

/* A thread, as pthread_t. A handle is valid until the thread is joined, or, if it is detached, until the thread ends.
 * The handle of a thread of pthreads is valid until that thread ends. Compare handles by ==. Null is no thread. */
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
    /* The least size of its stack, in bytes; 0: 256 KiB. Only the part that is used takes memory. Up to 16 MiB a
     * thread is cheap. A thread with a larger stack costs what pthread_create(3) costs. */
    size_t stack_size;
    /* Its name, or null. 15 bytes are kept. */
    const char *name;
    /* Not 0: the thread is detached. */
    int32_t detached;
    /* UPCALL_PRIORITY_..., and the priority. */
    int32_t priority_class;
    int32_t priority;
    /* 0. */
    int32_t reserved;
    /* A number for the program's own policy, which defines its meaning: a group, a class. upcall_policy(3). */
    uint64_t tag;
    /* When its work must be done, in nanoseconds of CLOCK_MONOTONIC, under the policy "deadline"; 0: its creator's
     * deadline. */
    uint64_t deadline_ns;
};

#define UPCALL_THREAD_ATTR_INITIALIZER { sizeof(struct upcall_thread_attr), 0, NULL, 0, 0, 0, 0, 0, 0 }

/* Makes a thread that runs start(argument), and stores its handle in *thread. thread may be null if the attributes
 * say detached. Null attributes are all defaults. The first call starts the runtime, unless upcall_start() was called
 * before. As pthread_create(3), but cheap if a thread has ended before: its stack and identity are used again.
 *   EAGAIN   there is no memory, or the kernel gives no thread
 *   EINVAL   an attribute is out of its range
 *   E2BIG    the attributes are of a later version and have properties that this one does not know
 *   EPERM    the priority is not allowed (without the policy "priority" it needs a privilege)
 * A C++ exception that leaves start ends the process (std::terminate). upcall.hpp hands it to join. */
int upcall_thread_create(upcall_thread_t *thread, const struct upcall_thread_attr *attributes,
                         void *(*start)(void *), void *argument);

/* The result of a thread that was ended by pthread_exit(3) or pthread_cancel(3): PTHREAD_CANCELED. The value that was
 * given to pthread_exit is lost: use upcall_thread_exit(). */
#define UPCALL_CANCELED ((void *)-1)

/* Waits until the thread has ended. Unless result is null, stores in *result what start returned or what was given to
 * upcall_thread_exit. The handle must not be used afterwards. As pthread_join(3).
 *   EDEADLK  it is the calling thread
 *   EINVAL   it is detached, another thread joins it, or upcall_thread_create did not make it
 *   ESRCH    null */
int upcall_thread_join(upcall_thread_t thread, void **result);

/* Joins the thread if it has ended, as upcall_thread_join does. EBUSY: it has not ended. pthread_tryjoin_np(3). */
int upcall_thread_tryjoin(upcall_thread_t thread, void **result);

/* Detaches the thread, which may be the calling one: no thread will join it. As pthread_detach(3).
 *   EINVAL, ESRCH  as upcall_thread_join */
int upcall_thread_detach(upcall_thread_t thread);

/* Ends the calling thread, as if start had returned result. Cleanup handlers run, and destructors of C++ objects on
 * the stack, of thread-local objects and of keys. As pthread_exit(3), also in threads that upcall_thread_create did
 * not make. It costs a shell: return from start where you can. */
#if defined(__cplusplus)
[[noreturn]]
#else
_Noreturn
#endif
void upcall_thread_exit(void *result);

/* Returns the calling thread, of whatever kind. pthread_self(3). Returns null if there is no memory. That cannot
 * happen in a thread that upcall_thread_create has made. */
upcall_thread_t upcall_thread_self(void);

/* Gives way to other ready threads. sched_yield(2). */
void upcall_thread_yield(void);

/* Sleeps for at least ns nanoseconds. Signals do not end the sleep. */
void upcall_thread_sleep(uint64_t ns);

/* Waits until upcall_thread_unpark is called for the calling thread. Returns at once if it was called since the last
 * park. May return early.
 *   ENOMEM   as upcall_thread_self: there is no memory */
int upcall_thread_park(void);

/* As upcall_thread_park, with a time limit.
 *   ETIMEDOUT  the moment came
 *   EINVAL     null, or tv_nsec is not below 1,000,000,000 */
int upcall_thread_timedpark(const struct timespec *deadline);

/* Ends the thread's upcall_thread_park, or its next one. The parked thread sees what the caller did before. ESRCH:
 * null. */
int upcall_thread_unpark(upcall_thread_t thread);

/* Sets the calling thread's name; 15 bytes are kept. pthread_setname_np(3). */
int upcall_thread_setname(const char *name);

/* Stores the name of a thread, and a zero. The name is empty if the thread has none of its own.
 * pthread_getname_np(3).
 *   ERANGE   the name needs more than size bytes: 16 are enough */
int upcall_thread_getname(upcall_thread_t thread, char *name, size_t size);

/* Sets how urgent a thread is. Under the policy "priority" (upcall_options, UPCALL_POLICY) no thread waits while a
 * less urgent one runs, on whatever virtual processor, and threads of equal urgency take turns. No privilege is
 * needed. Under the other policies, and natively, this is sched_setscheduler(2) and setpriority(2), with what they
 * allow.
 *   EINVAL   there is no such class, or the priority is not in its range
 *   EPERM    it is not allowed: see above
 *   ESRCH    null, or the thread has ended */
int upcall_thread_setpriority(upcall_thread_t thread, int priority_class, int priority);

/* Stores how urgent the thread is. Either pointer may be null. */
int upcall_thread_getpriority(upcall_thread_t thread, int *priority_class, int *priority);

/* Sets the moment (CLOCK_MONOTONIC) by which the calling thread's work must be done. A periodic thread calls this at
 * the beginning of each period. Under the policy "deadline" the thread with the nearest deadline runs first. Under
 * other policies nothing happens.
 *   EINVAL   null, or not a valid time */
int upcall_thread_setdeadline(const struct timespec *deadline);

/* ---- Fork and join: upcall_fork(3) ---- */

/* A call that may run at the same time as what follows. In memory of the caller's, mostly on its stack, which must stay
 * there until the call is joined. Join it also where an exception, pthread_exit(3) or a cancellation leaves the frame: in a
 * destructor, or by pthread_cleanup_push(3). A thread that ends without ends the process by SIGABRT. */
typedef struct upcall_fork {
    UPCALL_ALIGNAS(8) unsigned char opaque[80];
} upcall_fork_t;

/* Forks function(argument). It costs a few nanoseconds: it is called where it is joined, unless a virtual processor
 * without other work begins it before. That happens also while the calling thread waits, in the program or in the
 * kernel. So what runs between fork and join may wait for the function. The function must not wait for what the thread
 * does after the join.
 *   Which thread it is: the one that joins it, with its keys and thread-local storage, or one of its own with a stack of
 * the usual size and the signal mask of the thread that forks. The program cannot choose. Where threads have priorities,
 * deadlines or a policy of the program's own, it is always a thread of its own.
 *   EAGAIN   it must be a thread of its own, and there is no memory, or the kernel gives no thread; nothing was forked */
int upcall_fork(upcall_fork_t *fork, void *(*function)(void *), void *argument);

/* Joins a call that the calling thread has forked, and stores its result in *result, if that is not null. Calls may be
 * joined in any order; the cheapest is the youngest first. A thread joins what it has forked before it ends. If the
 * function was ended by pthread_exit(3) in a thread of its own, the result is PTHREAD_CANCELED.
 *   EINVAL   it was joined before
 *   EPERM    another thread has forked it
 *   ESRCH    in the child of a fork(2): another thread of the parent had taken it, and is not in this process
 * A C++ exception that leaves the function ends the process (std::terminate). upcall.hpp has upcall::join, which hands
 * it on. */
int upcall_fork_join(upcall_fork_t *fork, void **result);

/* ---- Critical sections: upcall_critical_enter(3) ---- */

/* Between these the calling thread is not preempted by other threads of the program. For locks whose waiters spin: they
 * would spin for nothing while the holder does not run. Locks of this library need it not.
 *   The end of the thread's time slice comes when it leaves, or after two more slices. If it loses its processor all the
 * same (to another program, or because it waits), it goes on before all threads that are in no section. It may wait. Each enter needs its leave, in the same thread; they may be inside of each other, and the
 * outermost counts. A leave too many does nothing. A section ends with its thread, and the child of a fork is in none.
 *   Each is one store, behind some instructions that find the thread; the last leave gives way to threads that were to run
 * meanwhile. They do nothing in threads of pthreads beside the runtime, and under `upcall run`. */
void upcall_critical_enter(void);
void upcall_critical_leave(void);

/* Makes the code from begin to before end a critical section, for as long as the process lives: a thread that is stopped in
 * it goes on to its end first, as above. The code makes no store; a thread that is overdue in it is stopped every 50 us until it has
 * left. A function that the code calls belongs to it only if it lies there. 0; EINVAL if end is not behind begin; ENOSPC if there
 * are 16 ranges. Functions in one section of the program need one range: UPCALL_CRITICAL_CODE marks them, and
 * upcall_critical_code(__start_upcall_critical, __stop_upcall_critical) is the range, with these names declared as
 * extern const char []. */
int upcall_critical_code(const void *begin, const void *end);
#define UPCALL_CRITICAL_CODE __attribute__((noinline, section("upcall_critical")))

/* ---- Policies of the program's own: upcall_policy(3) ---- */

/* The threads that a policy may ask about. Valid while one of the policy's functions runs. */
struct upcall_policy_threads;

#define UPCALL_RANK_COMMON (UINT64_C(1) << 63) /* a thread's rank until the policy gives it another */
#define UPCALL_RANK_HELD UINT64_MAX            /* a thread with this rank does not run, even if it is ready */

/* Why a thread is ready. */
#define UPCALL_READY_CREATED 0   /* it is new */
#define UPCALL_READY_UNBLOCKED 1 /* it has waited, in the program or in the kernel */
#define UPCALL_READY_YIELDED 2   /* it has yielded */
#define UPCALL_READY_PREEMPTED 3 /* it was stopped in favour of another thread, or at the end of its time slice */

/* A policy: functions that are told what happens to threads. They answer with ranks. A smaller rank is more urgent,
 * and threads of equal rank take turns. One thread of the library calls them, one after another. They may allocate
 * and lock, but nothing waits for them. Until a thread is given a rank, it has its creator's. A function that takes
 * longer than a time slice runs on after all other threads. Only `ready` must be set. The table is copied. The
 * context must stay until the process ends. Initialize with UPCALL_POLICY_INITIALIZER. */
struct upcall_policy {
    /* sizeof(struct upcall_policy). */
    size_t size;
    /* Passed to all functions. */
    void *context;
    /* A thread is ready, for one of the reasons UPCALL_READY_...; returns the thread's rank from here on. */
    uint64_t (*ready)(void *context, struct upcall_policy_threads *threads, uint64_t thread, int why);
    /* A thread waits, in the program or in the kernel. */
    void (*blocked)(void *context, struct upcall_policy_threads *threads, uint64_t thread);
    /* A thread has ended. Its number is not used again. */
    void (*ended)(void *context, struct upcall_policy_threads *threads, uint64_t thread);
    /* A virtual processor has nothing to run. */
    void (*idle)(void *context, struct upcall_policy_threads *threads);
    /* period_ns nanoseconds have passed since the last call. Never called if period_ns is 0. */
    void (*tick)(void *context, struct upcall_policy_threads *threads);
    uint64_t period_ns;
    /* upcalld gives the program's processors to others left_ns nanoseconds from now. Threads go on until then, in the order of
     * their ranks. */
    void (*warned)(void *context, struct upcall_policy_threads *threads, uint64_t left_ns);
};

#define UPCALL_POLICY_INITIALIZER { sizeof(struct upcall_policy), NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL }

/* Gives a thread another rank. The rank counts as soon as the function of the policy returns: a running thread gives
 * way if it must.
 *   ESRCH    the policy was told of no such living thread */
int upcall_policy_setrank(struct upcall_policy_threads *threads, uint64_t thread, uint64_t rank);

/* Stores the number that the program gave the thread (struct upcall_thread_attr); 0 if none.
 *   ESRCH    the policy was told of no such living thread */
int upcall_policy_gettag(struct upcall_policy_threads *threads, uint64_t thread, uint64_t *tag);

/* ---- Time ---- */

/* Stores the moment ns nanoseconds from now, by CLOCK_MONOTONIC. */
int upcall_deadline(struct timespec *deadline, uint64_t ns);

/* ---- Mutexes: upcall_mutex_lock(3) ---- */

/* A normal mutex, like PTHREAD_MUTEX_NORMAL: a thread that locks it twice deadlocks. It is neither fair nor robust,
 * and it cannot be shared between processes. Locking and unlocking it take one atomic operation each while no other
 * thread wants it. The last thread that locks and unlocks it may then use its memory for anything, also while another
 * thread has not returned from upcall_mutex_unlock yet. Under the policies "priority" and "deadline" and one of the
 * program's own, a waiting thread lends its urgency to the holder. There the memory must stay until each
 * upcall_mutex_unlock has returned. */
typedef struct {
    uint32_t upcall_private[4];
} upcall_mutex_t;
#define UPCALL_MUTEX_INITIALIZER { { 0, 0, 0, 0 } }

int upcall_mutex_init(upcall_mutex_t *mutex);
/* EBUSY: it is locked. */
int upcall_mutex_destroy(upcall_mutex_t *mutex);
int upcall_mutex_lock(upcall_mutex_t *mutex);
/* EBUSY: it is locked. */
int upcall_mutex_trylock(upcall_mutex_t *mutex);
/* ETIMEDOUT; EINVAL as upcall_thread_timedpark. pthread_mutex_clocklock(3). */
int upcall_mutex_timedlock(upcall_mutex_t *mutex, const struct timespec *deadline);
/* EPERM: it is not locked. If another thread has locked it, that is not detected. */
int upcall_mutex_unlock(upcall_mutex_t *mutex);

/* ---- Conditions: upcall_cond_wait(3) ---- */

/* The memory of a condition must stay until each call with it has returned, also in the threads that were woken. */
typedef struct {
    UPCALL_ALIGNAS(8) uint32_t upcall_private[4];
} upcall_cond_t;
#define UPCALL_COND_INITIALIZER { { 0, 0, 0, 0 } }

int upcall_cond_init(upcall_cond_t *cond);
/* EBUSY: a thread waits. */
int upcall_cond_destroy(upcall_cond_t *cond);
/* Unlocks the mutex, waits, and locks the mutex again. May return without a signal.
 *   EPERM    the mutex is not locked */
int upcall_cond_wait(upcall_cond_t *cond, upcall_mutex_t *mutex);
/* ETIMEDOUT: the moment came, and the mutex was locked again. pthread_cond_clockwait(3). */
int upcall_cond_timedwait(upcall_cond_t *cond, upcall_mutex_t *mutex, const struct timespec *deadline);
/* Wake one waiting thread, or all. Change what the condition is about while you hold the mutex. You may call these
 * after you have unlocked it. */
int upcall_cond_signal(upcall_cond_t *cond);
int upcall_cond_broadcast(upcall_cond_t *cond);

/* ---- Locks of readers and writers: upcall_rwlock_rdlock(3) ---- */

/* Readers and writers take turns, so neither starve. A thread that holds the lock as reader must not lock it again as
 * reader: a writer may wait in between. The memory of a lock must stay until each call with it has returned. */
typedef struct {
    uint32_t upcall_private[4];
} upcall_rwlock_t;
#define UPCALL_RWLOCK_INITIALIZER { { 0, 0, 0, 0 } }

int upcall_rwlock_init(upcall_rwlock_t *rwlock);
/* EBUSY: it is locked. */
int upcall_rwlock_destroy(upcall_rwlock_t *rwlock);
/* EAGAIN: 268,435,456 readers hold it; so too below. */
int upcall_rwlock_rdlock(upcall_rwlock_t *rwlock);
/* EBUSY: a writer holds it, or waits. */
int upcall_rwlock_tryrdlock(upcall_rwlock_t *rwlock);
int upcall_rwlock_timedrdlock(upcall_rwlock_t *rwlock, const struct timespec *deadline);
int upcall_rwlock_wrlock(upcall_rwlock_t *rwlock);
/* EBUSY: it is locked. */
int upcall_rwlock_trywrlock(upcall_rwlock_t *rwlock);
int upcall_rwlock_timedwrlock(upcall_rwlock_t *rwlock, const struct timespec *deadline);
/* EPERM: it is not locked. */
int upcall_rwlock_unlock(upcall_rwlock_t *rwlock);

/* ---- Semaphores: upcall_semaphore_wait(3) ---- */

/* As sem_t, for one process, but errors are returned. The last thread that waits for it may then use its memory for
 * anything, also while another thread has not returned from upcall_semaphore_post yet. */
typedef struct {
    UPCALL_ALIGNAS(8) uint32_t upcall_private[4];
} upcall_semaphore_t;
#define UPCALL_SEMAPHORE_INITIALIZER(value) { { (value), 0, 0, 0 } }

int upcall_semaphore_init(upcall_semaphore_t *semaphore, uint32_t value);
/* EBUSY: a thread waits. */
int upcall_semaphore_destroy(upcall_semaphore_t *semaphore);
int upcall_semaphore_wait(upcall_semaphore_t *semaphore);
/* EAGAIN: the value is 0. */
int upcall_semaphore_trywait(upcall_semaphore_t *semaphore);
/* ETIMEDOUT; EINVAL as upcall_thread_timedpark. sem_clockwait(3). */
int upcall_semaphore_timedwait(upcall_semaphore_t *semaphore, const struct timespec *deadline);
/* EOVERFLOW: the value is 4,294,967,295. */
int upcall_semaphore_post(upcall_semaphore_t *semaphore);
/* Stores the value that the semaphore had at some moment during the call. */
int upcall_semaphore_getvalue(upcall_semaphore_t *semaphore, uint32_t *value);

/* ---- Barriers: upcall_barrier_wait(3) ---- */

/* The memory of a barrier must stay until upcall_barrier_wait has returned in all threads. upcall_barrier_destroy
 * does not wait for threads that have met and have not returned yet. */
typedef struct {
    UPCALL_ALIGNAS(8) uint32_t upcall_private[8];
} upcall_barrier_t;

/* count threads meet at the barrier. EINVAL: count is 0. */
int upcall_barrier_init(upcall_barrier_t *barrier, uint32_t count);
/* EBUSY: threads wait. */
int upcall_barrier_destroy(upcall_barrier_t *barrier);
/* Waits until all threads are there. Then the barrier can be used again. One of the threads gets
 * UPCALL_BARRIER_SERIAL_THREAD, the others 0. EINVAL: the barrier is not initialized, or was destroyed. */
int upcall_barrier_wait(upcall_barrier_t *barrier);
#define UPCALL_BARRIER_SERIAL_THREAD (-1)

/* ---- Channels: upcall_channel_create(3) ---- */

/* A queue of elements of one size. Any thread may send and receive. Elements are copied in and out. */
typedef struct upcall_channel upcall_channel_t;

/* The capacity of an unbounded channel: it grows, and send never waits. */
#define UPCALL_UNBOUNDED SIZE_MAX

/* Makes a channel for up to `capacity` elements of element_size bytes. With element_size 0 the channel carries mere
 * signals.
 *   EINVAL   capacity 0: a channel needs room for at least one element
 *   ENOMEM   there is no memory, or the size is beyond the address space */
int upcall_channel_create(upcall_channel_t **channel, size_t element_size, size_t capacity);
/* Gives the channel's memory back. Elements in it are lost. Null does nothing. Each other call with the channel must
 * have returned.
 *   EBUSY    threads wait in it */
int upcall_channel_destroy(upcall_channel_t *channel);
/* Closes the channel: nothing can be sent any more; elements in it can be received. Wakes all threads that wait.
 * EALREADY: it was closed. */
int upcall_channel_close(upcall_channel_t *channel);
/* Copies an element into the channel. Waits while the channel is full.
 *   EPIPE    it is closed
 *   ENOMEM   it is unbounded, and there is no memory
 * The try forms return EAGAIN where the others would wait. The timed forms return ETIMEDOUT, and EINVAL as
 * upcall_thread_timedpark. */
int upcall_channel_send(upcall_channel_t *channel, const void *element);
int upcall_channel_trysend(upcall_channel_t *channel, const void *element);
int upcall_channel_timedsend(upcall_channel_t *channel, const void *element, const struct timespec *deadline);
/* Copies the oldest element out of the channel. Waits while there is none.
 *   EPIPE    the channel is closed and empty */
int upcall_channel_receive(upcall_channel_t *channel, void *element);
int upcall_channel_tryreceive(upcall_channel_t *channel, void *element);
int upcall_channel_timedreceive(upcall_channel_t *channel, void *element, const struct timespec *deadline);
/* Stores how many elements were in it at some moment during the call. */
int upcall_channel_length(upcall_channel_t *channel, size_t *length);

/* ---- Once: upcall_once(3) ---- */

/* The memory must stay until each call with the object has returned. */
typedef struct {
    uint32_t upcall_private[2];
} upcall_once_t;
#define UPCALL_ONCE_INITIALIZER { { 0, 0 } }

/* Calls init(argument), unless init has succeeded before. Threads that call upcall_once meanwhile wait. init returns
 * 0 or an error. The caller gets that error, and the next caller tries again. As pthread_once(3), which has neither
 * argument nor failure. init must return: it must not throw or exit. It must not call upcall_once with the same
 * object. */
int upcall_once(upcall_once_t *once, int (*init)(void *), void *argument);

/* ---- Keys: upcall_key_create(3) ---- */

/* A name for a value that each thread has of its own. Unlike a value of pthread_setspecific(3), such a value leaves
 * the thread's shell to the next thread, so that threads stay cheap (upcall_key_create(3) says by how much). So do
 * C11 _Thread_local and C++ thread_local. Prefer those where the language has them. */
typedef uint32_t upcall_key_t;
#define UPCALL_KEYS_MAX 1024

/* Values are null until they are set. When a thread ends and its value is not null, the value becomes null, and the
 * destructor, unless it is null, is called with the old value. This is repeated up to four times if destructors have
 * set values. For the first thread it happens at exit(3).
 *   EAGAIN   there are UPCALL_KEYS_MAX keys */
int upcall_key_create(upcall_key_t *key, void (*destructor)(void *));
/* Deletes the key. Its values are forgotten, and no destructor is called. EINVAL: there is no such key. */
int upcall_key_delete(upcall_key_t key);
/* Returns the calling thread's value; null if there is no such key. */
void *upcall_getspecific(upcall_key_t key);
/* Sets the calling thread's value.
 *   EINVAL   there is no such key
 *   ENOMEM   there is no memory; this cannot happen if the thread has set a value of this key before */
int upcall_setspecific(upcall_key_t key, const void *value);

UPCALL_STATIC_ASSERT(sizeof(struct upcall_options) == 56 || sizeof(void *) != 8, "upcall_options");
UPCALL_STATIC_ASSERT(sizeof(struct upcall_thread_attr) == 56 || sizeof(void *) != 8, "upcall_thread_attr");
UPCALL_STATIC_ASSERT(sizeof(struct upcall_policy) == 72 || sizeof(void *) != 8, "upcall_policy");
UPCALL_STATIC_ASSERT(sizeof(upcall_fork_t) == 80, "upcall_fork_t");
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
