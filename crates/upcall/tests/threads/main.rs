//! Threads of the crate: what they give back, what they leave behind, and that one takes the other's place.
//! Each setting is a process of its own, since there is one runtime in one.

mod ends;
mod shells;
mod values;
mod waits;

use std::process::Command;

use ends::*;
use shells::*;
use upcall::thread;
use values::*;
use waits::*;

macro_rules! cases {
    ($($case:ident)*) => {
        $(
            $case();
            println!("ok {}", stringify!($case));
        )*
    };
}

fn again(word: &str, settings: &[(&str, &str)], status: i32) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command
        .arg(word)
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let (out, error) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.code() == Some(status),
        "{word} {settings:?}: {}\n{out}\n{error}",
        output.status
    );
    print!("{out}");
}

/// Goes on in a child, and ends with its status.
fn in_child(goes_on: impl FnOnce()) -> ! {
    // SAFETY: the child has this thread, and goes on with it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        goes_on();
    }
    let mut status = 0;
    // SAFETY: a child of ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    std::process::exit(libc::WEXITSTATUS(status));
}

fn main() {
    if !upcall_linux::arch::SERVES_PROGRAMS {
        println!("skipped: not on this architecture");
        return;
    }
    // What hangs ends by this.
    // SAFETY: asks for a signal.
    unsafe { libc::alarm(100) };
    match std::env::args().nth(1).as_deref() {
        Some("first-ends") => {
            upcall::Runtime::start().unwrap();
            first_ends()
        }
        Some("first-ends-before") => {
            upcall::Runtime::start().unwrap();
            // There are shells in which they may run.
            thread::scope(|scope| (0..300).for_each(|_| drop(scope.spawn(thread::yield_now))));
            first_ends_before_others_begin()
        }
        Some("child-first-ends") => {
            upcall::Runtime::start().unwrap();
            thread::spawn(|| ()).join().unwrap();
            in_child(|| first_ends());
        }
        Some("signals") => {
            upcall::Runtime::start().unwrap();
            signals_wait_for_who_accepts_them();
        }
        Some("trims") => {
            upcall::Runtime::start().unwrap();
            free_stacks_lose_their_pages();
            in_child(|| {
                free_stacks_lose_their_pages();
                first_ends();
            });
        }
        Some("overflows") => {
            let variant = std::env::args().nth(2).and_then(|word| word.parse().ok());
            overflows(variant.expect("a number"));
        }
        Some("usual-stack") => {
            // More than there is where nothing is said.
            upcall::Runtime::builder()
                .stack_size(2 << 20)
                .start()
                .unwrap();
            let sum = thread::spawn(|| {
                let room = std::hint::black_box([1u8; 1 << 20]);
                room.iter().map(|&one| u32::from(one)).sum::<u32>()
            });
            assert_eq!(sum.join().unwrap(), 1 << 20);
        }
        Some("divides") => divided_work_has_few_shells(),
        Some("batch") => a_batch_runs_in_few_shells(),
        Some("waits") => who_waits_has_few_pages(),
        Some("limited") => limited_addresses_refuse_threads(),
        Some("cases") => {
            cases! {
                values_come_back
                panics_come_back
                who_drops_the_handle_drops_the_result
                threads_have_names_and_numbers
                thread_local_storage_is_new_for_each
                values_of_keys_are_destroyed
                other_processors_are_refused
                shells_are_used_again
                a_batch_has_shells_for_who_waits
                a_batch_has_the_masks_of_its_creator
                who_is_made_rounds_as_its_creator
                parking_waits_for_a_token
                parking_in_std_is_ended_by_what_std_calls_the_thread
                scopes_wait_for_their_threads
                who_blocks_keeps_nobody_waiting
                trees_of_threads_add_up
                who_joins_takes_signals
                stacks_are_as_large_as_asked_for
                children_have_threads_of_their_own
                threads_of_std_are_as_good
            }
        }
        _ => {
            ends_with_a_message();
            again("usual-stack", &[], 0);
            // No slice ends meanwhile: that would put new threads behind others.
            let alone = [("UPCALL_VPS", "1"), ("UPCALL_SLICE_US", "1000000")];
            again("divides", &alone, 0);
            again("batch", &alone, 0);
            again("waits", &alone, 0);
            again("limited", &[], 0);
            for vps in ["1", "2", "4"] {
                for slice in ["5000", "100"] {
                    println!("{vps} virtual processors, slices of {slice} us");
                    again(
                        "cases",
                        &[("UPCALL_VPS", vps), ("UPCALL_SLICE_US", slice)],
                        0,
                    );
                }
                again("first-ends", &[("UPCALL_VPS", vps)], 3);
                again("first-ends-before", &[("UPCALL_VPS", vps)], 5);
                again("signals", &[("UPCALL_VPS", vps)], 0);
                again("trims", &[("UPCALL_VPS", vps)], 3);
                again("child-first-ends", &[("UPCALL_VPS", vps)], 3);
            }
        }
    }
}
