//! Keys: values that each thread has of its own.
//!
//! A key is a place in a table; its number of uses (odd: in use) makes a value that was set for an earlier key of the
//! same place count as none. A thread's values are in a block that it owns by one word of thread-local
//! storage, with a destructor, so that they end with a thread however it ends: returned, exited, of pthreads.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use libc::c_int;

/// UPCALL_KEYS_MAX.
const KEYS: usize = 1024;
/// PTHREAD_DESTRUCTOR_ITERATIONS.
const ROUNDS: usize = 4;

struct Key {
    uses: AtomicU32,
    /// A `Destructor`, or null.
    destructor: AtomicPtr<c_void>,
}

type Destructor = extern "C" fn(*mut c_void);

static TABLE: [Key; KEYS] = [const {
    Key {
        uses: AtomicU32::new(0),
        destructor: AtomicPtr::new(ptr::null_mut()),
    }
}; KEYS];

/// One change of the table at a time.
static CHANGES: upcall::raw::Mutex = upcall::raw::Mutex::new();

fn is_used(uses: u32) -> bool {
    !uses.is_multiple_of(2)
}

impl Key {
    /// Its number of uses, if it is in use.
    fn uses(&self) -> Option<u32> {
        // Acquire: pairs with the Release in `upcall_key_create`: the destructor is seen.
        Some(self.uses.load(Ordering::Acquire)).filter(|&uses| is_used(uses))
    }

    fn destructor(&self) -> Option<Destructor> {
        let destructor = self.destructor.load(Ordering::Relaxed);
        // SAFETY: null, or a function of this type, as `upcall_key_create` has got it.
        unsafe { std::mem::transmute::<*mut c_void, Option<Destructor>>(destructor) }
    }
}

#[derive(Clone, Copy)]
struct Value {
    uses: u32,
    value: *mut c_void,
}

/// The values of a thread.
struct Values(RefCell<Vec<Value>>);

thread_local! {
    static OWN: Values = const { Values(RefCell::new(Vec::new())) };
}

impl Values {
    fn get(&self, key: usize) -> *mut c_void {
        let uses = TABLE.get(key).and_then(Key::uses);
        let values = self.0.borrow();
        match values.get(key) {
            Some(value) if Some(value.uses) == uses => value.value,
            _ => ptr::null_mut(),
        }
    }

    fn set(&self, key: usize, value: *mut c_void) -> c_int {
        let Some(uses) = TABLE.get(key).and_then(Key::uses) else {
            return libc::EINVAL;
        };
        let mut values = self.0.borrow_mut();
        let more = (key + 1).saturating_sub(values.len());
        if more > 0 {
            if value.is_null() {
                return 0;
            }
            if values.try_reserve(more).is_err() {
                return libc::ENOMEM;
            }
            let none = Value {
                uses: 0,
                value: ptr::null_mut(),
            };
            values.resize(key + 1, none);
        }
        values[key] = Value { uses, value };
        0
    }
}

impl Drop for Values {
    /// The thread ends. Destructors may set values again, so nothing is borrowed while one runs; but thread-local
    /// storage answers no more: they go to `ENDING`.
    fn drop(&mut self) {
        ENDING.set(self);
        for _ in 0..ROUNDS {
            let mut called = false;
            // They may grow meanwhile.
            let mut index = 0;
            while index < self.0.borrow().len() {
                let none = ptr::null_mut();
                let Value { uses, .. } = self.0.borrow()[index];
                let value = std::mem::replace(&mut self.0.borrow_mut()[index].value, none);
                let key = &TABLE[index];
                if !value.is_null()
                    && key.uses() == Some(uses)
                    && let Some(destructor) = key.destructor()
                {
                    destructor(value);
                    called = true;
                }
                index += 1;
            }
            if !called {
                break;
            }
        }
        ENDING.set(ptr::null());
    }
}

thread_local! {
    /// The values of a thread whose destructors run.
    static ENDING: std::cell::Cell<*const Values> = const { std::cell::Cell::new(ptr::null()) };
}

fn with<R>(use_values: impl Fn(&Values) -> R) -> Option<R> {
    // SAFETY: null, or what is being dropped, in this thread, for as long as destructors run.
    if let Some(values) = unsafe { ENDING.get().as_ref() } {
        return Some(use_values(values));
    }
    OWN.try_with(|values| use_values(values)).ok()
}

c_functions! {
    /// A key that no value is set for.
    fn upcall_key_create(key: *mut u32, destructor: Option<Destructor>) -> c_int {
        if key.is_null() {
            return libc::EINVAL;
        }
        CHANGES.lock();
        let free = TABLE
            .iter()
            .position(|key| !is_used(key.uses.load(Ordering::Relaxed)));
        if let Some(index) = free {
            let pointer = destructor.map_or(ptr::null_mut(), |one| one as *mut c_void);
            TABLE[index].destructor.store(pointer, Ordering::Relaxed);
            // Release: pairs with the Acquire in `Key::uses`.
            TABLE[index].uses.fetch_add(1, Ordering::Release);
        }
        CHANGES.unlock();
        let Some(index) = free else {
            return libc::EAGAIN;
        };
        put!(key, index as u32);
        0
    }

    /// The key is not used any more.
    fn upcall_key_delete(key: u32) -> c_int {
        CHANGES.lock();
        let used = TABLE.get(key as usize).filter(|key| key.uses().is_some());
        if let Some(key) = used {
            key.uses.fetch_add(1, Ordering::Relaxed);
        }
        CHANGES.unlock();
        crate::answer::unless(used.is_some(), libc::EINVAL)
    }

    /// The calling thread's value.
    fn upcall_getspecific(key: u32) -> *mut c_void {
        with(|values| values.get(key as usize)).unwrap_or(ptr::null_mut())
    }

    /// Sets the calling thread's value.
    fn upcall_setspecific(key: u32, value: *mut c_void) -> c_int {
        // Where it has been destroyed nothing is kept any more.
        with(|values| values.set(key as usize, value)).unwrap_or(libc::ENOMEM)
    }
}
