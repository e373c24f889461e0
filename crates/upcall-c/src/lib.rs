//! The C library of Upcall: what `include/upcall.h` declares, over the crate `upcall`.
//!
//! The header is written by hand and says what each function does; here is how. Objects of the header are those of
//! [`upcall::raw`] and [`upcall::sync`], in the caller's memory; all their bytes are zero when they are new
//! ([`layout`]). Threads are records (`thread::record`), in the room of a shell where there is one.
//!
//! No function panics: what could be wrong is asked first and answered with an error number, and memory is asked for
//! where it may be refused. Exceptions and forced unwinding (pthread_exit(3)) pass through the frame that called the
//! thread's function, which has nothing to clean up.

/// The functions of a group, in the form that C calls. They leave errno as it was, whatever they call.
macro_rules! c_functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty $body:block)*) => {
        c_functions_on_words! {$(
            $(#[$doc])*
            fn $name($($argument: $type),*) -> $result {
                crate::answer::keeping_errno(|| $body)
            }
        )*}
    };
}

/// The same for functions that call nothing of libc's by which errno could be touched, and are to be fast.
macro_rules! c_functions_on_words {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// Pointers are null, or to what the header says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result $body
    )*};
}

/// What a pointer of the caller's leads to; the calling function answers EINVAL if it cannot lead to anything.
macro_rules! at {
    ($pointer:expr) => {{
        let pointer = $pointer;
        if pointer.is_null() || !pointer.is_aligned() {
            return libc::EINVAL;
        }
        // SAFETY: as the function's caller has promised.
        unsafe { &*pointer }
    }};
}

/// Writes to where a pointer of the caller's leads; null is an error, or nowhere.
macro_rules! put {
    ($pointer:expr, $value:expr) => {{
        let (pointer, value) = ($pointer, $value);
        if pointer.is_null() || !pointer.is_aligned() {
            return libc::EINVAL;
        }
        // SAFETY: as the function's caller has promised.
        unsafe { pointer.write(value) }
    }};
    ($pointer:expr, $value:expr, or nowhere) => {{
        let (pointer, value) = ($pointer, $value);
        if !pointer.is_null() {
            put!(pointer, value);
        }
    }};
}

/// The moment that a time limit of the caller's is.
macro_rules! limit {
    ($deadline:expr) => {
        match crate::time::limit(at!($deadline)) {
            Ok(deadline) => deadline,
            Err(number) => return number,
        }
    };
}

mod answer;
pub mod barrier;
pub mod channel;
pub mod cond;
pub mod critical;
pub mod fork;
pub mod key;
pub mod layout;
pub mod mutex;
pub mod once;
pub mod options;
mod policy;
pub mod rwlock;
pub mod semaphore;
pub mod thread;
pub mod time;
mod versioned;
