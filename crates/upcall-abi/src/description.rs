//! What a debugger reads in the memory of a program under Upcall, live or in a core file: where its threads are and how
//! they are laid out.
//!
//! 1. The library in the program has one [`Description`]. An ELF note leads to it, which neither strip(1) nor a core
//!    file leaves out: its name is [`NOTE_NAME`], its type [`NOTE_TYPE`], and its contents are 64 bits: how far
//!    the description is behind these contents.
//! 2. The reader compares [`MAGIC`], [`VERSION`] and the size. It knows nothing of the layout but what the description
//!    says.
//! 3. Every structure in it lives as long as the process. A reader that does not stop the program sees each word at some
//!    moment.
//!
//! `gdb/upcall.py` and `upcall stacks` read it. The library writes it once, at compile time.

/// What a description begins with.
pub const MAGIC: u64 = 0x6e65_6464_7075_0001;
/// The version of the layout of [`Description`], and of what its numbers mean.
pub const VERSION: u32 = 2;
/// The name of the note, with its zero.
pub const NOTE_NAME: &[u8; 7] = b"Upcall\0";
/// The type of the note.
pub const NOTE_TYPE: u32 = 1;

macro_rules! numbers {
    ($(#[$attribute:meta])* $name:ident { $($(#[$of_field:meta])* $field:ident,)+ }) => {
        $(#[$attribute])*
        #[repr(C)]
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name {
            $($(#[$of_field])* pub $field: u32,)+
        }

        impl $name {
            /// The names of its numbers, in their order.
            pub const NAMES: &[&str] = &[$(stringify!($field),)+];
        }
    };
}

numbers! {
    /// Offsets in bytes. A word has 64 bits if nothing else is said.
    Offsets {
        /// In a thread: the address of its saved registers, [`Offsets::saved_ip`] and so on.
        thread_context,
        /// In a thread: the number of its state (32 bits). [`Description::standings`] says what it means.
        thread_state,
        /// In a thread: what it waits for. The two low bits are an index of [`Description::waits`], the others the address.
        thread_wait,
        /// In a thread: the activation that carries it, or 0.
        thread_carrier,
        /// In a thread: not 0 if it has a deadline (32 bits).
        thread_has_deadline,
        /// In a thread: its deadline, in nanoseconds of CLOCK_MONOTONIC.
        thread_deadline,
        /// In a thread: its id (32 bits).
        thread_id,
        /// In a thread: its name, 16 bytes with zeros at its end.
        thread_name,
        /// In a thread: the address of the registers at its system call, [`Offsets::frame_ip`] and so on; 0 if it is in none.
        thread_frame,
        /// In a thread: its thread pointer.
        thread_pointer,
        /// In a thread: its shell, or 0.
        thread_shell,
        /// In a thread: the record of the kernel thread of its own, or 0.
        thread_bound,
        /// In a thread: 1 if it waits for a descriptor (8 bits).
        thread_waits,
        /// In a thread: the descriptor (32 bits).
        thread_descriptor,
        /// In a thread: what for (32 bits): 1 to read, 2 to write.
        thread_wants,
        /// In a thread: not 0 if it waits for more descriptors.
        thread_sibling,
        /// In a shell: the address of a task, or 0. A thread runs in the shell if this leads back to it, and has not ended.
        shell_task,
        /// In a task: the address of a shell, or 0.
        task_shell,
        /// In a task: [`Offsets::task_over`] if it has ended.
        task_ending,
        /// What that word is then. No offset.
        task_over,
        /// In a record: the id of the kernel thread (32 bits).
        bound_tid,
        /// In a record: [`Offsets::bound_away`] if the kernel thread runs the thread (32 bits).
        bound_state,
        /// No offset, but that value.
        bound_away,
        /// In an activation: its virtual processor.
        activation_vp,
        /// In an activation: the number of what it does (32 bits). [`Description::activities`] says what it means.
        activation_activity,
        /// In an activation: not 0 if it was replaced while it was blocked (32 bits).
        activation_marks,
        /// In an activation: the id of its kernel thread (32 bits).
        activation_tid,
        /// In a virtual processor: the address of its owner; the three low bits are an index of [`Description::states`].
        vp_word,
        /// In a virtual processor: its number (32 bits).
        vp_index,
        /// In a virtual processor: the number of the processor (32 bits).
        vp_processor,
        /// In the runtime: the address of the first virtual processor.
        runtime_vps,
        /// In the runtime: how many there are (32 bits).
        runtime_nr_vps,
        /// No offset, but how far one virtual processor is behind another.
        vp_size,
        /// In saved registers: where the thread goes on.
        saved_ip,
        /// In saved registers: the stack pointer there.
        saved_sp,
        /// In saved registers: rbp.
        saved_bp,
        /// In saved registers: rbx.
        saved_bx,
        /// In the registers at a system call: the number of the call.
        frame_call,
        /// In the registers at a system call: its first argument.
        frame_argument,
        /// In the registers at a system call: the instruction behind it.
        frame_ip,
        /// In the registers at a system call: the stack pointer.
        frame_sp,
        /// In the registers at a system call: rbp.
        frame_bp,
        /// In the registers at a system call: rbx.
        frame_bx,
        /// In the registers at a system call: r12.
        frame_r12,
        /// In the registers at a system call: r13.
        frame_r13,
        /// In the registers at a system call: r14.
        frame_r14,
        /// In the registers at a system call: r15.
        frame_r15,
    }
}

/// What the word of a thread's state means ([`Description::standings`]).
pub mod standing {
    /// It runs on its carrier. If it has none it is on its way from one state to another, or runs on a kernel thread of
    /// its own.
    pub const RUNNING: u8 = 1;
    /// It is being saved.
    pub const PARKING: u8 = 2;
    /// It is saved, and waits.
    pub const PARKED: u8 = 3;
    /// It is saved, and waits for a virtual processor.
    pub const READY: u8 = 4;
    /// It is saved and ready, and its scheduling policy does not let it run.
    pub const HELD: u8 = 5;
    /// It was woken while it was being saved.
    pub const WOKEN: u8 = 6;
}

/// What an activation does ([`Description::activities`]).
pub mod activity {
    /// It runs, or is blocked outside of any system call that it has announced.
    pub const RUNNING: u8 = 1;
    /// Its thread is in a system call that may block.
    pub const IN_CALL: u8 = 2;
    /// Another one has its virtual processor; its thread was running.
    pub const DISPLACED: u8 = 3;
    /// It was replaced on a page fault.
    pub const UNSETTLED: u8 = 4;
    /// It has no thread.
    pub const ALONE: u8 = 5;
}

/// What the owner of a virtual processor does ([`Description::states`]).
pub mod state {
    /// It runs its thread.
    pub const RUNNING: u8 = 1;
    /// Its thread is in a system call that may block.
    pub const IN_CALL: u8 = 2;
    /// It has nothing to run.
    pub const IDLE: u8 = 3;
}

/// What a thread waits for ([`Description::waits`]).
pub mod wait {
    /// Nothing, if the whole word is 0. Otherwise somebody's wake-up for the word at that address (futex(2)).
    pub const WORD: u8 = 1;
    /// Its deadline.
    pub const SLEEP: u8 = 2;
    /// The end of another thread.
    pub const END: u8 = 3;
}

/// See the module's text. `P` is an address: of this process, or a number of another one's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Description<P> {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Of this structure, in bytes.
    pub size: u32,
    /// Where the address of the runtime is; that is 0 if there is none: then the program's threads are the kernel's.
    pub runtime: P,
    /// Where the address of the first thread is, or 0.
    pub first: P,
    /// Where the address of the table of all other threads is, or 0. The table has words, each the address of a thread
    /// or 0.
    pub table: P,
    /// Where it is said how many words of the table were used.
    pub used: P,
    /// Where a thread is saved that has not begun. Its other saved registers mean nothing.
    pub beginning: P,
    /// How many words the table has.
    pub most: u64,
    /// Where everything is.
    pub offsets: Offsets,
    /// By the number of a thread's state, one of [`standing`].
    pub standings: [u8; 16],
    /// By the number of an activation's activity, one of [`activity`].
    pub activities: [u8; 16],
    /// By the number of a virtual processor's state, one of [`state`].
    pub states: [u8; 8],
    /// By the kind of a wait, one of [`wait`].
    pub waits: [u8; 4],
}

// SAFETY: never written.
unsafe impl Sync for Description<*const u8> {}

const _: () = assert!(size_of::<Description<u64>>() == size_of::<Description<*const u8>>());
