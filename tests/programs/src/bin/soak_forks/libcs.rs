//! Threads by pthread_create(3). One of std's takes a lock of std's when it begins and when it ends, which no fork(2) opens, and
//! in the child of a fork the crate makes threads of std's.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

struct Job<F, T> {
    body: Option<F>,
    value: Option<T>,
}

extern "C" fn run<F: FnOnce() -> T, T>(job: *mut c_void) -> *mut c_void {
    // SAFETY: as `beside` passes it, which waits for the thread.
    let job = unsafe { &mut *job.cast::<Job<F, T>>() };
    job.value = job.body.take().map(|body| body());
    std::ptr::null_mut()
}

/// Calls each of these in a thread, and `meanwhile` here. Returns what they return. A panic in a thread ends the process.
pub fn beside<F: FnOnce() -> T + Send, T: Send, R>(
    bodies: impl IntoIterator<Item = F>,
    meanwhile: impl FnOnce() -> R,
) -> (Vec<T>, R) {
    let job = |body| Job {
        body: Some(body),
        value: None,
    };
    let mut jobs: Vec<Job<F, T>> = bodies.into_iter().map(job).collect();
    let first = jobs.as_mut_ptr();
    let threads: Vec<libc::pthread_t> = (0..jobs.len())
        .map(|at| {
            let mut thread = 0;
            let null = std::ptr::null();
            // SAFETY: a job of its own, which is there until the thread is joined: nothing unwinds before.
            let refusal = unsafe {
                let job = first.add(at).cast();
                libc::pthread_create(&raw mut thread, null, run::<F, T>, job)
            };
            if refusal != 0 {
                eprintln!("pthread_create(3): error {refusal}");
                std::process::abort();
            }
            thread
        })
        .collect();
    let done = catch_unwind(AssertUnwindSafe(meanwhile));
    for thread in threads {
        // SAFETY: made above, and joined once.
        unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
    }
    let values = jobs.into_iter().map(|job| job.value.expect("it has run"));
    match done {
        Ok(done) => (values.collect(), done),
        Err(panic) => resume_unwind(panic),
    }
}
