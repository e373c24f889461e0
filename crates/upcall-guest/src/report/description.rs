//! Tells debuggers where the threads are: see [`upcall_abi::description`], and docs/adr/0038.
//!
//! Nothing in the process reads it. Each offset comes from the structure itself, so none can be out of date. The note
//! that leads to it is a part of this object's code: strip(1) leaves it, and a reader finds it by the program headers.

use core::arch::global_asm;
use core::mem::offset_of;

use upcall_abi::description::{
    Description, MAGIC, NOTE_NAME, NOTE_TYPE, Offsets, VERSION, activity, standing, state, wait,
};
use upcall_core::ending::Ending;
use upcall_core::{Activity, Standing, State, arch};
use upcall_linux::{Activation, Linux, LinuxActivation, LinuxThread, Runtime, Thread, Vp};

use crate::ground::attributes::GuestThread;
use crate::ground::entry::Frame;
use crate::ground::identity;
use crate::ground::record::Bound;
use crate::ground::state::GUEST;
use crate::thread::{bound, shell::Shell};

const ROOM: usize = LinuxThread::OFFSET_ROOM;

const OFFSETS: Offsets = Offsets {
    thread_context: Thread::OFFSET_CONTEXT as u32,
    thread_state: Thread::OFFSET_STATE as u32,
    thread_wait: Thread::OFFSET_WAIT as u32,
    thread_carrier: Thread::OFFSET_CARRIER as u32,
    thread_has_deadline: Thread::OFFSET_HAS_DEADLINE as u32,
    thread_deadline: Thread::OFFSET_DEADLINE as u32,
    thread_id: (ROOM + offset_of!(GuestThread, tid)) as u32,
    thread_name: (ROOM + offset_of!(GuestThread, name)) as u32,
    thread_frame: (ROOM + offset_of!(GuestThread, frame)) as u32,
    thread_pointer: LinuxThread::OFFSET_THREAD_POINTER as u32,
    thread_shell: (ROOM + offset_of!(GuestThread, shell)) as u32,
    thread_bound: (ROOM + offset_of!(GuestThread, bound)) as u32,
    thread_waits: LinuxThread::OFFSET_WAITS as u32,
    thread_descriptor: LinuxThread::OFFSET_DESCRIPTOR as u32,
    thread_wants: LinuxThread::OFFSET_WANTS as u32,
    thread_sibling: LinuxThread::OFFSET_SIBLING as u32,
    shell_task: Shell::OFFSET_TASK as u32,
    task_shell: Shell::OFFSET_IN_TASK as u32,
    task_ending: Shell::OFFSET_ENDING as u32,
    task_over: Ending::<Linux>::OVER as u32,
    bound_tid: offset_of!(Bound, tid) as u32,
    bound_state: offset_of!(Bound, state) as u32,
    bound_away: bound::AWAY,
    activation_vp: Activation::OFFSET_VP as u32,
    activation_activity: Activation::OFFSET_ACTIVITY as u32,
    activation_marks: Activation::OFFSET_MARKS as u32,
    activation_tid: LinuxActivation::OFFSET_TID as u32,
    vp_word: Vp::OFFSET_WORD as u32,
    vp_index: Vp::OFFSET_INDEX as u32,
    vp_processor: Vp::OFFSET_PROCESSOR as u32,
    runtime_vps: Runtime::OFFSET_VPS as u32,
    runtime_nr_vps: Runtime::OFFSET_NR_VPS as u32,
    vp_size: size_of::<Vp>() as u32,
    saved_ip: arch::SAVED[0] as u32,
    saved_sp: arch::SAVED[1] as u32,
    saved_bp: arch::SAVED[2] as u32,
    saved_bx: arch::SAVED[3] as u32,
    frame_call: offset_of!(Frame, rax) as u32,
    frame_argument: offset_of!(Frame, rdi) as u32,
    frame_ip: offset_of!(Frame, rip) as u32,
    frame_sp: offset_of!(Frame, rsp) as u32,
    frame_bp: offset_of!(Frame, rbp) as u32,
    frame_bx: offset_of!(Frame, rbx) as u32,
    frame_r12: offset_of!(Frame, r12) as u32,
    frame_r13: offset_of!(Frame, r13) as u32,
    frame_r14: offset_of!(Frame, r14) as u32,
    frame_r15: offset_of!(Frame, r15) as u32,
};

const fn standings() -> [u8; 16] {
    let mut all = [0; 16];
    let mut at = 0;
    while at < Thread::STANDINGS.len() {
        all[at] = match Thread::STANDINGS[at] {
            Standing::Running => standing::RUNNING,
            Standing::Parking => standing::PARKING,
            Standing::Parked => standing::PARKED,
            Standing::Ready => standing::READY,
            Standing::Held => standing::HELD,
            Standing::Woken => standing::WOKEN,
        };
        at += 1;
    }
    all
}

const fn activities() -> [u8; 16] {
    let mut all = [0; 16];
    all[Activity::Running as usize] = activity::RUNNING;
    all[Activity::InCall as usize] = activity::IN_CALL;
    all[Activity::Displaced as usize] = activity::DISPLACED;
    all[Activity::Unsettled as usize] = activity::UNSETTLED;
    all[Activity::Standby as usize] = activity::ALONE;
    all[Activity::Spare as usize] = activity::ALONE;
    all[Activity::Reserved as usize] = activity::ALONE;
    all[Activity::Resting as usize] = activity::ALONE;
    all
}

const fn states() -> [u8; 8] {
    let mut all = [0; 8];
    assert!(Vp::STATE_BITS == all.len() - 1);
    all[State::User as usize] = state::RUNNING;
    all[Vp::BIASED] = state::RUNNING;
    all[State::Runtime as usize] = state::RUNNING;
    all[State::Kernel as usize] = state::IN_CALL;
    all[State::Idle as usize] = state::IDLE;
    all[State::Granted as usize] = state::RUNNING;
    all[State::Rung as usize] = state::IDLE;
    all
}

const fn waits() -> [u8; 4] {
    let mut all = [0; 4];
    all[Thread::WAIT_WORD] = wait::WORD;
    all[Thread::WAIT_SLEEP] = wait::SLEEP;
    all[Thread::WAIT_END] = wait::END;
    all[Thread::WAIT_ALONE] = wait::WORD;
    all
}

const WORDS: [*const u8; 3] = GUEST.identities.words();

/// Makes this module a part of a program that links the crate: linkers leave out what nobody asks for.
pub fn keep() {
    core::hint::black_box(&raw const DESCRIPTION);
}

static DESCRIPTION: Description<*const u8> = Description {
    magic: MAGIC,
    version: VERSION,
    size: size_of::<Description<*const u8>>() as u32,
    runtime: (&raw const GUEST.runtime).cast(),
    first: WORDS[0],
    table: WORDS[1],
    used: WORDS[2],
    beginning: arch::BEGINNING as *const u8,
    most: identity::MOST as u64,
    offsets: OFFSETS,
    standings: standings(),
    activities: activities(),
    states: states(),
    waits: waits(),
};

global_asm!(
    ".pushsection .note.upcall,\"a\",@note",
    ".balign 4",
    ".long {name_size}, 8, {kind}",
    ".asciz \"Upcall\"",
    ".balign 4",
    ".quad {description} - .",
    ".popsection",
    name_size = const NOTE_NAME.len(),
    kind = const NOTE_TYPE,
    description = sym DESCRIPTION,
);
