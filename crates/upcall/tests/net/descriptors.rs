//! Descriptors of any kind: waiting, numbers that are used again, limits, and what interrupts.

use super::*;

pub fn what_is_given_away_blocks_as_usual() {
    let (reader, mut writer) = io::pipe().unwrap();
    let mut file = File::from(reader.into_blocking_fd().unwrap());
    let reads = spawn(move || {
        let mut said = String::new();
        file.read_to_string(&mut said).map(|_| said)
    });
    give_time();
    writer.write_all(b"said").unwrap();
    drop(writer);
    assert_eq!(reads().unwrap(), "said");
    let (one, other) = UnixStream::pair().unwrap();
    let mut of_std = one.into_std().unwrap();
    let reads = spawn(move || {
        let mut byte = [0];
        of_std.read(&mut byte).map(|count| (count, of_std))
    });
    give_time();
    other.write_shared(b"x").unwrap();
    let (count, of_std) = reads().unwrap();
    assert_eq!(count, 1);
    let again = UnixStream::from_std(of_std).unwrap();
    let clone = again.try_clone().unwrap();
    again.set_deadline(Some(Instant::now()));
    other.write_shared(b"y").unwrap();
    assert!(again.read_shared(&mut [0]).is_err());
    assert_eq!(clone.read_shared(&mut [0]).unwrap(), 1);
    let owned = OwnedFd::from(clone);
    let clone = UnixStream::try_from(owned).unwrap();
    clone.set_deadline(soon());
    assert!(clone.take_error().unwrap().is_none());
    assert_eq!(
        clone.read_shared(&mut [0]).unwrap_err().kind(),
        ErrorKind::TimedOut
    );
}

fn event() -> File {
    // SAFETY: a new descriptor.
    unsafe { File::from_raw_fd(libc::eventfd(0, 0)) }
}

pub fn any_descriptor_can_be_waited_for() {
    let error = io::wait(event(), Interest::READABLE, soon()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let event = Arc::new(event());
    let waits = {
        let event = event.clone();
        spawn(move || io::wait(&*event, Interest::READABLE | Interest::PRIORITY, late()))
    };
    give_time();
    (&*event).write_all(&1u64.to_ne_bytes()).unwrap();
    let ready = waits().unwrap();
    assert!(ready.is_readable() && !ready.is_priority() && !ready.is_error());
    // A deadline that has passed asks.
    let past = Some(Instant::now() - SHORT);
    let ready = io::wait(&*event, Interest::WRITABLE, past).unwrap();
    assert!(ready.is_writable());
    let file = File::open("/proc/self/exe").unwrap();
    let ready = io::wait(&file, Interest::READABLE | Interest::WRITABLE, None).unwrap();
    assert!(ready.is_readable() && ready.is_writable());
    let (one, other) = UnixStream::pair().unwrap();
    drop(other);
    let ready = io::wait(&one, Interest::READABLE, None).unwrap();
    assert!(ready.is_hung_up() && ready.is_readable());
    // SAFETY: nobody has this number.
    let nothing = unsafe { BorrowedFd::borrow_raw(1_000_000) };
    let error = io::wait(nothing, Interest::READABLE, None).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
}

/// In the kernel a wait goes on with the file that it began with.
pub fn a_number_that_is_used_again_under_a_wait() {
    for _ in 0..20 {
        let (reader, mut writer) = io::pipe().unwrap();
        let number = reader.as_fd().as_raw_fd();
        let waits = spawn(move || {
            // SAFETY: closed meanwhile, on purpose: waiting is all that is done with it.
            let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
            io::wait(borrowed, Interest::READABLE, late())
        });
        give_time();
        let (mut other_reader, mut other_writer) = io::pipe().unwrap();
        // SAFETY: the number of `reader` means another file from here on.
        unsafe {
            assert_eq!(libc::dup2(other_reader.as_fd().as_raw_fd(), number), number);
        }
        let again = spawn(move || {
            let mut reader = reader;
            let mut byte = [0];
            reader.read_exact(&mut byte).unwrap();
            byte
        });
        give_time();
        other_writer.write_all(b"n").unwrap();
        assert_eq!(again(), *b"n");
        // Nobody can read the first one any more but the thread that waits for it.
        let _ = writer.write(b"o");
        drop(writer);
        drop(other_writer);
        // Under a runtime poll(2) is made again, on the number, which is closed; natively on the first file.
        if let Ok(ready) = waits() {
            assert!(ready.is_readable() || ready.is_error() || ready.is_hung_up());
        }
        assert_eq!(other_reader.read(&mut [0]).unwrap(), 0);
    }
}

/// Numbers that were waited for by others before are as new.
pub fn numbers_are_used_again_after_waits() {
    let mut last = -1;
    let mut again = 0;
    for round in 0..200u32 {
        let (mut one, other) = UnixStream::pair().unwrap();
        again += u32::from(one.as_raw_fd() == last);
        last = one.as_raw_fd();
        let waits = spawn(move || {
            let mut word = [0; 4];
            one.read_exact(&mut word).unwrap();
            u32::from_ne_bytes(word)
        });
        if round % 3 == 0 {
            give_time();
        }
        (&other).write_all(&round.to_ne_bytes()).unwrap();
        assert_eq!(waits(), round);
    }
    assert!(again > 100, "{again} of 200");
}

pub fn a_child_of_fork_uses_what_it_inherits() {
    let (mut reader, mut writer) = io::pipe().unwrap();
    let (mut go_in, mut go) = io::pipe().unwrap();
    // SAFETY: the child makes system calls only, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut byte = [0];
        let ok = go_in.read(&mut byte).is_ok() && writer.write_all(b"from the child").is_ok();
        // SAFETY: ends the child.
        unsafe { libc::_exit(if ok { 0 } else { 9 }) };
    }
    assert!(child > 0);
    drop(writer);
    let reads = spawn(move || {
        let mut said = String::new();
        reader.read_to_string(&mut said).map(|_| said)
    });
    give_time();
    go.write_all(b"!").unwrap();
    assert_eq!(reads().unwrap(), "from the child");
    let mut status = 0;
    // SAFETY: our child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn handle(_signal: i32) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

pub fn handlers_run_during_a_wait_and_do_not_end_it() {
    // SAFETY: a handler that counts; without SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()),
            0
        );
    }
    for by_descriptor in [false, true] {
        let (one, mut other) = UnixStream::pair().unwrap();
        one.set_read_deadline(late());
        let begun = Arc::new(Barrier::new(2));
        let own = begun.clone();
        let whose = Arc::new(AtomicUsize::new(0));
        let tells = whose.clone();
        let reads = spawn(move || {
            // SAFETY: asks.
            tells.store(unsafe { libc::pthread_self() } as usize, Ordering::SeqCst);
            own.wait();
            if by_descriptor {
                io::wait(&one, Interest::READABLE, late()).unwrap();
            }
            one.read_shared(&mut [0; 8])
        });
        begun.wait();
        let before = HANDLED.load(Ordering::SeqCst);
        for round in 1..=5 {
            give_time();
            let whose = whose.load(Ordering::SeqCst) as libc::pthread_t;
            // SAFETY: the thread waits for what comes below.
            assert_eq!(unsafe { libc::pthread_kill(whose, libc::SIGUSR1) }, 0);
            while HANDLED.load(Ordering::SeqCst) < before + round {
                upcall::thread::yield_now();
            }
        }
        other.write_all(b"done").unwrap();
        assert_eq!(reads().unwrap(), 4);
        assert_eq!(HANDLED.load(Ordering::SeqCst), before + 5);
    }
}

/// Descriptors and their limit.
fn limit(new: Option<u64>) -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: reads and writes the structure.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let before = limit.rlim_cur;
        if let Some(new) = new {
            limit.rlim_cur = new;
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        }
        before
    }
}

pub fn without_descriptors_accept_fails_and_the_connection_waits() {
    let (listener, address) = listener();
    let client = TcpStream::connect(address).unwrap();
    let wall = File::open("/dev/null").unwrap();
    let before = limit(Some(wall.as_raw_fd() as u64 + 1));
    listener.set_deadline(late());
    let error = listener.accept().unwrap_err();
    let pipe = io::pipe().unwrap_err();
    limit(Some(before));
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    assert_eq!(pipe.raw_os_error(), Some(libc::EMFILE));
    let (served, _) = listener.accept().unwrap();
    (&served).write_all(b"x").unwrap();
    assert_eq!((&client).read(&mut [0; 2]).unwrap(), 1);
}

/// A kernel thread that libc starts for itself moves the deadline.
pub fn a_helper_of_libc_ends_a_wait() {
    #[repr(C)]
    struct Event {
        value: usize,
        signal: i32,
        notify: i32,
        function: extern "C" fn(usize),
        attributes: usize,
        room: [usize; 8],
    }
    const SIGEV_THREAD: i32 = 2;
    extern "C" fn ends(socket: usize) {
        // SAFETY: the test waits for it.
        let socket = unsafe { &*(socket as *const UnixStream) };
        socket.set_deadline(Some(Instant::now()));
    }
    let (one, _other) = UnixStream::pair().unwrap();
    let one = Arc::new(one);
    let reads = {
        let one = one.clone();
        spawn(move || one.read_shared(&mut [0]).unwrap_err().kind())
    };
    let mut event = Event {
        value: Arc::as_ptr(&one) as usize,
        signal: 0,
        notify: SIGEV_THREAD,
        function: ends,
        attributes: 0,
        room: [0; 8],
    };
    // SAFETY: libc's structure for this kind of notification; a timer that rings once.
    unsafe {
        let mut timer = std::mem::zeroed();
        let place = (&raw mut event).cast();
        assert_eq!(
            libc::timer_create(libc::CLOCK_MONOTONIC, place, &raw mut timer),
            0
        );
        let mut setting: libc::itimerspec = std::mem::zeroed();
        setting.it_value.tv_nsec = 5_000_000;
        assert_eq!(
            libc::timer_settime(timer, 0, &raw const setting, std::ptr::null_mut()),
            0
        );
        assert_eq!(reads(), ErrorKind::TimedOut);
        assert_eq!(libc::timer_delete(timer), 0);
    }
}
