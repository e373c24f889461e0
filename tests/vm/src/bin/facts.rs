//! Which facilities of the kernel work here. The program tries each one that the runtime may use; it deduces nothing
//! from the kernel's version.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering::SeqCst};
use std::thread;

use vm_tests::report::Report;
use vm_tests::sys::{self, check};

const MADV_GUARD_INSTALL: i32 = 102;
const UFFD_USER_MODE_ONLY: i32 = 1;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFD_FEATURE_SIGBUS: u64 = 1 << 7;
const HWCAP2_FSGSBASE: u64 = 2;
const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;

/// What a probe found: whether it works, and the evidence.
type Finding = Result<String, String>;

fn text(error: io::Error) -> String {
    error.to_string()
}

fn sysctl(path: &str) -> Finding {
    fs::read_to_string(format!("/proc/sys/{path}"))
        .map(|value| value.trim().to_owned())
        .map_err(text)
}

/// perf's record of context switches of the calling thread, user mode only.
fn perf_switch_ring() -> Finding {
    // perf_event_attr, version 0: type software, size 64, config dummy (9).
    let mut attr = [0u64; 8];
    attr[0] = 1 | 64 << 32;
    attr[1] = 9;
    // exclude_kernel (5), exclude_hv (6), context_switch (26).
    attr[5] = 1 << 5 | 1 << 6 | 1 << 26;
    // SAFETY: the attribute block is as long as its size member says.
    let fd =
        check(unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), 0, -1, -1, 0) })
            .map_err(text)?;
    // SAFETY: a descriptor that the kernel has just given us.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    // SAFETY: a fresh shared mapping: the control page and one page of records.
    let ring = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            8192,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd.as_raw_fd(),
            0,
        )
    };
    if ring == libc::MAP_FAILED {
        return Err(format!("mmap of the ring: {}", io::Error::last_os_error()));
    }
    for _ in 0..5 {
        sys::sleep_ns(1_000_000);
    }
    // SAFETY: data_head lies at byte 1024 of perf's control page, aligned, shared.
    let head = unsafe { AtomicU64::from_ptr(ring.byte_add(1024).cast()) }.load(SeqCst);
    match head {
        0 => Err("opened, but no record after 5 blocks".into()),
        bytes => Ok(format!("{bytes} bytes of records for 5 blocks")),
    }
}

/// What /proc tells about a thread that blocks in a system call and one that computes.
fn proc_task_syscall() -> Finding {
    static BLOCKED: AtomicI32 = AtomicI32::new(0);
    thread::spawn(|| {
        BLOCKED.store(sys::tid(), SeqCst);
        loop {
            sys::sleep_ns(3_600_000_000_000);
        }
    });
    while BLOCKED.load(SeqCst) == 0 {
        thread::yield_now();
    }
    sys::sleep_ns(20_000_000);
    let read = |tid: i32| -> Result<String, String> {
        fs::read_to_string(format!("/proc/self/task/{tid}/syscall"))
            .map(|line| line.trim().to_owned())
            .map_err(text)
    };
    let blocked = read(BLOCKED.load(SeqCst))?;
    let number = blocked.split(' ').next().unwrap_or("").to_owned();
    if number == libc::SYS_nanosleep.to_string() || number == libc::SYS_clock_nanosleep.to_string()
    {
        Ok(format!(
            "a blocked thread reads \"{number} …\", itself reads \"{}\"",
            read(sys::tid())?
        ))
    } else {
        Err(format!("a thread in nanosleep reads \"{blocked}\""))
    }
}

unsafe extern "C" {
    static __rseq_offset: isize;
    static __rseq_size: u32;
}

// An abort handler as the kernel wants it, after its signature; never reached, since the
// program counter is outside the critical section whenever the thread is stopped.
std::arch::global_asm!(
    ".pushsection .text.vm_facts_abort, \"ax\"",
    ".long 0x53053053",
    "vm_facts_abort: ud2",
    ".popsection",
);

unsafe extern "C" {
    fn vm_facts_abort();
}

#[repr(C, align(32))]
struct CriticalSection {
    version: u32,
    flags: u32,
    start: u64,
    length: u64,
    abort: u64,
}

/// Where the kernel finds the calling thread's critical section, and a section to put there.
fn rseq_slot() -> Result<(&'static AtomicU64, u64), String> {
    // SAFETY: constants of the C library, set before main.
    let (offset, size) = unsafe { (__rseq_offset, __rseq_size) };
    if size == 0 {
        return Err("the C library did not register".into());
    }
    let section = Box::leak(Box::new(CriticalSection {
        version: 0,
        flags: 0,
        start: 0,
        length: 0,
        abort: vm_facts_abort as *const () as u64,
    }));
    let thread_pointer: usize;
    // SAFETY: reads the thread control block's self pointer.
    unsafe { std::arch::asm!("mov {}, fs:0", out(reg) thread_pointer, options(nostack, readonly)) };
    let slot = thread_pointer.wrapping_add_signed(offset + 8) as *mut u64;
    // SAFETY: rseq_cs lies at byte 8 of the area that the C library registered for this
    // thread; the area lives as long as the thread, which does not hand the slot on.
    Ok((
        unsafe { AtomicU64::from_ptr(slot) },
        &raw const *section as u64,
    ))
}

/// Finds whether the kernel disarms a section when the thread blocks.
fn rseq_disarmed_by_block() -> Finding {
    let (slot, section) = rseq_slot()?;
    slot.store(section, SeqCst);
    sys::sleep_ns(1_000_000);
    match slot.swap(0, SeqCst) {
        0 => Ok("disarmed by a nanosleep".into()),
        _ => Err("still armed after a nanosleep".into()),
    }
}

/// Times that the kernel has switched away from the calling thread.
fn switches() -> i64 {
    // SAFETY: an all-zero rusage is valid, and outlives the call.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage.ru_nvcsw + usage.ru_nivcsw
    }
}

/// 2000 yields on one processor, with or without another thread that yields there too: how
/// often the switch counters moved, how often the section was disarmed, how often both.
fn yields(competitor: bool) -> Result<(u32, u32, u32), String> {
    static QUIT: AtomicI32 = AtomicI32::new(0);
    sys::pin(0).map_err(text)?;
    QUIT.store(0, SeqCst);
    let other = competitor.then(|| {
        thread::spawn(|| {
            while QUIT.load(SeqCst) == 0 {
                thread::yield_now();
            }
        })
    });
    let (slot, section) = rseq_slot()?;
    let (mut moved, mut disarmed, mut both) = (0, 0, 0);
    for _ in 0..2000 {
        let before = switches();
        slot.store(section, SeqCst);
        thread::yield_now();
        let gone = slot.swap(0, SeqCst) == 0;
        let switched = switches() != before;
        moved += u32::from(switched);
        disarmed += u32::from(gone);
        both += u32::from(gone && switched);
    }
    QUIT.store(1, SeqCst);
    if let Some(other) = other {
        other.join().map_err(|_| "panicked".to_owned())?;
    }
    Ok((moved, disarmed, both))
}

/// Finds whether an armed section distinguishes a yield that switched from one that did not.
fn rseq_tells_yield_switched() -> Finding {
    let (_, alone, _) = yields(false)?;
    let (moved, disarmed, both) = yields(true)?;
    let detail = format!(
        "2000 yields alone: {alone} disarmed; beside another: {moved} switched by the counters, {disarmed} disarmed, {both} both"
    );
    if alone == 0 && moved > 100 && both * 10 >= moved * 9 {
        Ok(detail)
    } else {
        Err(detail)
    }
}

/// Finds whether getrusage's counters distinguish a yield that switched from one that did not.
fn rusage_tells_yield_switched() -> Finding {
    let (alone, _, _) = yields(false)?;
    let (beside, _, _) = yields(true)?;
    let detail = format!("switched, of 2000 yields: {alone} alone, {beside} beside another");
    if alone < 100 && beside > 3 * alone + 100 {
        Ok(detail)
    } else {
        Err(detail)
    }
}

fn guard_install() -> Finding {
    // SAFETY: a fresh private mapping, and advice on it alone.
    unsafe {
        let pages = libc::mmap(
            std::ptr::null_mut(),
            16384,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        check(libc::madvise(pages, 4096, MADV_GUARD_INSTALL).into()).map_err(text)?;
    }
    Ok("installed".into())
}

fn userfaultfd() -> Finding {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | UFFD_USER_MODE_ONLY;
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) }).map_err(text)?;
    // SAFETY: a descriptor that the kernel has just given us.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let mut api = [0xaa, UFFD_FEATURE_SIGBUS, 0];
    // SAFETY: struct uffdio_api is three 64-bit words.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API, api.as_mut_ptr()) }.into())
        .map_err(text)?;
    Ok(format!("with SIGBUS; features {:#x}", api[1]))
}

fn fsgsbase() -> Finding {
    // SAFETY: takes no pointers.
    let hwcap2 = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    if hwcap2 & HWCAP2_FSGSBASE == 0 {
        return Err(format!("AT_HWCAP2 is {hwcap2:#x}"));
    }
    let base: u64;
    // SAFETY: the kernel has said that the instruction is enabled.
    unsafe { std::arch::asm!("rdfsbase {}", out(reg) base, options(nomem, nostack)) };
    Ok(format!(
        "rdfsbase gives {}",
        if base == 0 { "0" } else { "a base" }
    ))
}

fn epoll_pwait2() -> Finding {
    // SAFETY: takes no pointers.
    let epoll = check(unsafe { libc::epoll_create1(0) }.into()).map_err(text)?;
    let span = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1000,
    };
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 1];
    // SAFETY: the buffer holds one event, the timeout outlives the call, no mask is given.
    let got = check(unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll,
            events.as_mut_ptr(),
            1,
            &span,
            0,
            0,
        )
    })
    .map_err(text)?;
    Ok(format!("{got} events after 1 µs"))
}

/// A read that must not block, on an empty descriptor that is in blocking mode. It must fail with
/// EAGAIN.
fn nowait_read(fd: i32) -> Finding {
    let mut byte = [0u8; 1];
    let part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    // SAFETY: one part that describes a live buffer.
    let result = check(unsafe { libc::preadv2(fd, &part, 1, -1, libc::RWF_NOWAIT) } as i64);
    match result {
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok("EAGAIN when empty".into()),
        Err(error) => Err(text(error)),
        Ok(count) => Err(format!("read {count} bytes from an empty descriptor")),
    }
}

fn nowait_pipe() -> Finding {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    check(unsafe { libc::pipe(ends.as_mut_ptr()) }.into()).map_err(text)?;
    nowait_read(ends[0])
}

fn nowait_socket() -> Finding {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    let made = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr()) };
    check(made.into()).map_err(text)?;
    nowait_read(ends[0])
}

fn nowait_tcp() -> Finding {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(text)?;
    let _client =
        std::net::TcpStream::connect(listener.local_addr().map_err(text)?).map_err(text)?;
    let (server, _) = listener.accept().map_err(text)?;
    nowait_read(server.as_raw_fd())
}

fn nowait_eventfd() -> Finding {
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::eventfd(0, 0) }.into()).map_err(text)?;
    let mut value = [0u8; 8];
    let part = libc::iovec {
        iov_base: value.as_mut_ptr().cast(),
        iov_len: 8,
    };
    // SAFETY: one part that describes a live buffer.
    match check(unsafe { libc::preadv2(fd as i32, &part, 1, -1, libc::RWF_NOWAIT) } as i64) {
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok("EAGAIN when empty".into()),
        other => Err(format!("{other:?}")),
    }
}

fn membarrier() -> Finding {
    let call = |command: i32| {
        // SAFETY: takes no pointers.
        check(unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) })
    };
    let supported = call(0).map_err(text)?;
    call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED).map_err(text)?;
    call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED).map_err(text)?;
    call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ).map_err(text)?;
    call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ).map_err(text)?;
    Ok(format!(
        "private expedited, and for rseq; commands {supported:#x}"
    ))
}

static SELECTOR: AtomicU8 = AtomicU8::new(0);
static DISPATCHED: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_sigsys(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    SELECTOR.store(0, SeqCst);
    // SAFETY: the kernel passes a whole siginfo; si_syscall is an int at byte 24 for SIGSYS.
    DISPATCHED.store(unsafe { info.cast::<i32>().add(6).read() }, SeqCst);
}

/// A system call is handed to the program's own handler while the selector says so.
fn syscall_user_dispatch() -> Finding {
    // SAFETY: installs a handler that touches atomics only, then switches dispatch on for
    // this thread and off again, with a selector that lives for ever.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigsys as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        check(libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()).into()).map_err(text)?;
        check(libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, SELECTOR.as_ptr()).into())
            .map_err(text)?;
        SELECTOR.store(1, SeqCst);
        libc::syscall(libc::SYS_getppid);
        SELECTOR.store(0, SeqCst);
        libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0);
    }
    match DISPATCHED.load(SeqCst) {
        number if i64::from(number) == libc::SYS_getppid => Ok("SIGSYS names the call".into()),
        number => Err(format!("handler saw call {number}")),
    }
}

fn io_uring() -> Finding {
    let mut params = [0u32; 30];
    // SAFETY: struct io_uring_params is 120 bytes.
    let fd = check(unsafe { libc::syscall(libc::SYS_io_uring_setup, 8, params.as_mut_ptr()) })
        .map_err(text)?;
    // SAFETY: closes what we have just opened.
    unsafe { libc::close(fd as i32) };
    Ok(format!("features {:#x}", params[5]))
}

/// Runs a probe on a kernel thread of its own, whose policy nobody needs afterwards.
fn apart(probe: fn() -> Finding) -> Finding {
    thread::spawn(probe)
        .join()
        .unwrap_or(Err("panicked".into()))
}

fn idle_and_back() -> Finding {
    sys::set_policy(libc::SCHED_IDLE).map_err(|error| format!("entering: {error}"))?;
    sys::set_policy(libc::SCHED_OTHER).map_err(|error| format!("leaving: {error}"))?;
    Ok("and back".into())
}

fn idle_to_batch() -> Finding {
    sys::set_policy(libc::SCHED_IDLE).map_err(|error| format!("entering: {error}"))?;
    sys::set_policy(libc::SCHED_BATCH).map_err(|error| format!("leaving: {error}"))?;
    Ok("left to SCHED_BATCH".into())
}

fn nice19_and_back() -> Finding {
    sys::set_nice(19).map_err(|error| format!("to 19: {error}"))?;
    sys::set_nice(0).map_err(|error| format!("back to 0: {error}"))?;
    Ok("and back".into())
}

fn batch_and_back() -> Finding {
    sys::set_policy(libc::SCHED_BATCH).map_err(|error| format!("entering: {error}"))?;
    sys::set_policy(libc::SCHED_OTHER).map_err(|error| format!("leaving: {error}"))?;
    Ok("and back".into())
}

fn rlimit_nice() -> Finding {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure outlives the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NICE, &mut limit) }.into()).map_err(text)?;
    // SAFETY: takes no pointers.
    Ok(format!("{} (user {})", limit.rlim_cur, unsafe {
        libc::geteuid()
    }))
}

fn main() {
    let mut release = String::new();
    fs::File::open("/proc/sys/kernel/osrelease")
        .and_then(|mut file| file.read_to_string(&mut release))
        .expect("proc is mounted");
    let probes: [(&str, Finding); 27] = [
        ("kernel", Ok(release.trim().to_owned())),
        (
            "sysctl_perf_event_paranoid",
            sysctl("kernel/perf_event_paranoid"),
        ),
        (
            "sysctl_unprivileged_userfaultfd",
            sysctl("vm/unprivileged_userfaultfd"),
        ),
        (
            "sysctl_sched_autogroup_enabled",
            sysctl("kernel/sched_autogroup_enabled"),
        ),
        ("sysctl_max_map_count", sysctl("vm/max_map_count")),
        ("rlimit_nice", rlimit_nice()),
        ("perf_switch_ring", apart(perf_switch_ring)),
        ("proc_task_syscall", proc_task_syscall()),
        ("rseq_disarmed_by_block", apart(rseq_disarmed_by_block)),
        (
            "rseq_tells_yield_switched",
            apart(rseq_tells_yield_switched),
        ),
        (
            "rusage_tells_yield_switched",
            apart(rusage_tells_yield_switched),
        ),
        ("madv_guard_install", guard_install()),
        ("uffd_user_mode_only", userfaultfd()),
        ("fsgsbase", fsgsbase()),
        ("epoll_pwait2", epoll_pwait2()),
        ("rwf_nowait_pipe", nowait_pipe()),
        ("rwf_nowait_unix_socket", nowait_socket()),
        ("rwf_nowait_tcp_socket", nowait_tcp()),
        ("rwf_nowait_eventfd", nowait_eventfd()),
        ("membarrier", membarrier()),
        ("syscall_user_dispatch", apart(syscall_user_dispatch)),
        ("io_uring", io_uring()),
        ("sched_idle_and_back", apart(idle_and_back)),
        ("sched_idle_to_batch", apart(idle_to_batch)),
        ("sched_batch_and_back", apart(batch_and_back)),
        ("nice19_and_back", apart(nice19_and_back)),
        (
            "sched_ext",
            fs::read_to_string("/sys/kernel/sched_ext/state")
                .map(|s| s.trim().into())
                .map_err(text),
        ),
    ];
    let mut report = Report::new("facts", &["fact", "works", "detail"]);
    for (name, finding) in probes {
        let works = finding.is_ok();
        let detail = finding.unwrap_or_else(|why| why);
        report.row(vec![name.into(), works.into(), detail.into()]);
    }
    report.print();
}
