//! What a thread of the crate leaves in its shell, and how the shell gets its initial state back.
//!
//! 1. Destructors of thread-local objects run (`__call_tls_dtors`, which libc calls at a thread's end).
//! 2. The thread-local storage of every object but libc and the loader is written anew, as in a new thread. libc's own
//!    stays: its contents (caches of malloc(3), the locale) may outlive a thread. An object that dlopen(3) has loaded may
//!    have its storage elsewhere in each thread: with one of those loaded, no shell is used twice.
//! 3. Everything else that libc would take back with a thread makes the shell end: values of pthread_key_create(3), a
//!    cancellation, a changed way of being cancelled.
//!
//! libc tells debuggers (libthread_db) the places in its control block. Where it does not, no shell is used twice.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::ffi::{CStr, c_int, c_void};
use std::sync::Mutex;

use upcall_linux::{Thread, base};

use crate::ground::attributes::GuestAttributes;
use crate::rewrite::object;
use crate::signal;
use crate::thread::robust;

/// One object's thread-local storage as it is in a new thread, and where it is, relative to the thread pointer.
struct Block {
    image: Vec<u8>,
    offset: isize,
}

/// What is known, from the first shell on.
struct Known {
    blocks: Vec<Block>,
    /// Where the control block says that there are values of keys: a byte.
    keys_used: usize,
    /// Where it says how the thread may be cancelled: four bytes.
    cancelling: usize,
    destructors: unsafe extern "C" fn(),
}

const CANCEL_ENABLE: c_int = 0;
const CANCEL_DEFERRED: c_int = 0;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}

static KNOWN: AtomicPtr<Known> = AtomicPtr::new(core::ptr::null_mut());
static LOOKING: Mutex<()> = Mutex::new(());
static LOOKED: AtomicBool = AtomicBool::new(false);
/// How many objects were loaded and unloaded when `KNOWN` was made.
static LOADS: AtomicUsize = AtomicUsize::new(0);

/// Looks at the loaded objects. Before there is a shell, outside the runtime.
pub(super) fn prepare() {
    if LOOKED.load(Ordering::Acquire) {
        return;
    }
    let _looking = LOOKING.lock().unwrap_or_else(|e| e.into_inner());
    if LOOKED.load(Ordering::Relaxed) {
        return;
    }
    if let Some(known) = look() {
        KNOWN.store(Box::into_raw(Box::new(known)), Ordering::Release);
    }
    signal::report_overflows();
    LOOKED.store(true, Ordering::Release);
}

fn look() -> Option<Known> {
    // SAFETY: dlsym with constant names; what libc tells debuggers is three numbers of 32 bits: the
    // field's size in bits, how many there are, and where it is.
    let field = |name: &CStr| unsafe {
        let field = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).cast::<[u32; 3]>();
        field.as_ref().copied()
    };
    let [bits, count, specific] = field(c"_thread_db_pthread_specific")?;
    let [_, _, cancelling] = field(c"_thread_db_pthread_cancelhandling")?;
    // SAFETY: as above; the function has this type.
    let destructors = unsafe {
        let found = libc::dlvsym(
            libc::RTLD_DEFAULT,
            c"__call_tls_dtors".as_ptr(),
            c"GLIBC_PRIVATE".as_ptr(),
        );
        if found.is_null() {
            return None;
        }
        core::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(found)
    };
    let mut known = Known {
        blocks: Vec::new(),
        // Behind the table of the values' pages.
        keys_used: (specific + bits / 8 * count) as usize,
        cancelling: cancelling as usize,
        destructors,
    };
    LOADS.store(object::generation()?, Ordering::Relaxed);
    let mut seen = Seen {
        keys_used: known.keys_used,
        tells_of_keys: false,
        blocks: Vec::new(),
        has_others: false,
    };
    let mut thread: libc::pthread_t = 0;
    // SAFETY: a thread that is joined here, and what it gets stays as long.
    let ran = unsafe {
        let argument = (&raw mut seen).cast();
        libc::pthread_create(&raw mut thread, core::ptr::null(), see, argument) == 0
            && libc::pthread_join(thread, core::ptr::null_mut()) == 0
    };
    known.blocks = seen.blocks;
    (ran && seen.tells_of_keys && !seen.has_others).then_some(known)
}

/// What a thread sees that has done nothing else.
struct Seen {
    keys_used: usize,
    /// The byte at that place of a control block tells if its thread has set a value.
    tells_of_keys: bool,
    blocks: Vec<Block>,
    /// There are objects whose storage is not beside the control block, but wherever a thread finds room that touches
    /// it: dlopen(3) has loaded them.
    has_others: bool,
}

extern "C" fn see(seen: *mut c_void) -> *mut c_void {
    // SAFETY: as `look` passes it; `collect` has the callback's type and gets what it expects.
    unsafe {
        let seen = seen.cast::<Seen>();
        (*seen).tells_of_keys = tells_of_keys((*seen).keys_used);
        libc::dl_iterate_phdr(Some(collect), seen.cast());
    }
    core::ptr::null_mut()
}

fn tells_of_keys(place: usize) -> bool {
    let byte = (base::thread_pointer() + place) as *const u8;
    // SAFETY: inside of the calling thread's control block, since libc says that the table before it is.
    let look = || unsafe { byte.read_volatile() };
    let mut key = 0;
    // SAFETY: a key of our own, with a value that nobody looks at.
    unsafe {
        if libc::pthread_key_create(&raw mut key, None) != 0 {
            return false;
        }
        let before = look();
        libc::pthread_setspecific(key, core::ptr::without_provenance(1));
        let after = look();
        libc::pthread_setspecific(key, core::ptr::null());
        libc::pthread_key_delete(key);
        before == 0 && after == 1
    }
}

/// What the loader says of one object.
unsafe extern "C" fn collect(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid record and our own pointer, for this call.
    let (info, seen) = unsafe { (&*info, &mut *data.cast::<Seen>()) };
    // SAFETY: the loader says how many headers there are.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let Some(header) = headers.iter().find(|header| header.p_type == libc::PT_TLS) else {
        return 0;
    };
    let name = match info.dlpi_name.is_null() {
        true => &[],
        // SAFETY: the loader's name, which ends in zero.
        false => unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes(),
    };
    let is_libcs = name.ends_with(b"/libc.so.6") || name.windows(4).any(|part| part == b"/ld-");
    if is_libcs {
        return 0;
    }
    if info.dlpi_tls_data.is_null() {
        seen.has_others = true;
    } else {
        let from = info.dlpi_addr as usize + header.p_vaddr as usize;
        // SAFETY: the loader copies it from there for each new thread.
        let image =
            unsafe { core::slice::from_raw_parts(from as *const u8, header.p_filesz as usize) };
        let mut image = image.to_vec();
        image.resize(header.p_memsz as usize, 0);
        seen.blocks.push(Block {
            image,
            offset: info.dlpi_tls_data as isize - base::thread_pointer() as isize,
        });
    }
    0
}

/// Called when a thread of the crate has run, in the thread itself, outside the runtime. Destroys its thread-local objects
/// and restores the shell. Returns true if the shell can be used again.
#[inline]
pub(super) fn reset(thread: &'static Thread) -> bool {
    // SAFETY: null, or leaked.
    let Some(known) = (unsafe { KNOWN.load(Ordering::Acquire).as_ref() }) else {
        return false;
    };
    // SAFETY: what libc does at the end of a thread, in the thread.
    unsafe { (known.destructors)() };
    let pointer = thread.kernel.thread_pointer.load(Ordering::Relaxed);
    // SAFETY: places in the calling thread's control block, see `look`.
    let (keys_used, mut cancelling) = unsafe {
        (
            ((pointer + known.keys_used) as *const u8).read_volatile(),
            ((pointer + known.cancelling) as *const u32).read_volatile(),
        )
    };
    if cancelling != 0 {
        cancelling = uncancel(pointer + known.cancelling);
    }
    let as_loaded = object::generation() == Some(LOADS.load(Ordering::Relaxed));
    if keys_used != 0 || cancelling != 0 || !as_loaded || !is_plain(thread) {
        return false;
    }
    for block in &known.blocks {
        // SAFETY: the calling thread's own storage of this object, which is loaded for good (no object has
        // been unloaded since); nothing of what was there is used any more.
        unsafe {
            let to = pointer.wrapping_add_signed(block.offset) as *mut u8;
            core::ptr::copy_nonoverlapping(block.image.as_ptr(), to, block.image.len());
        }
    }
    true
}

/// Makes the calling thread cancellable, as a new one is. Returns the word's new value.
#[cold]
fn uncancel(word: usize) -> u32 {
    // SAFETY: what the calling thread may do with itself; the word is in its control block.
    unsafe {
        pthread_setcancelstate(CANCEL_ENABLE, core::ptr::null_mut());
        pthread_setcanceltype(CANCEL_DEFERRED, core::ptr::null_mut());
        (word as *const u32).read_volatile()
    }
}

/// Returns true if the kernel would have nothing to take back.
#[inline]
fn is_plain(thread: &'static Thread) -> bool {
    thread.guest().altstack[1].load(Ordering::Relaxed) == 0
        && thread.kernel.pending.load(Ordering::Relaxed) == 0
        && robust::is_empty(thread)
}
