//! The program's memory may say anything, and a core file may be broken: there is an answer all the same.

use object::elf::{EM_X86_64, ET_CORE, NT_FILE, NT_PRSTATUS, PT_LOAD, PT_NOTE};
use proptest::prelude::*;
use upcall_abi::description::{Description, MAGIC, NOTE_NAME, NOTE_TYPE, Offsets, VERSION};

use super::memory::Memory;
use super::objects::{Files, Objects};
use super::threads::Threads;
use super::unwind::{BP, IP, Registers, SP, Unwinder};

/// Where the memory of the program is, and how much of it.
const START: u64 = 0x10_0000;
const LENGTH: u64 = 0x4000;
/// Where its library describes itself.
const DESCRIBED: u64 = START + 0x200;
const SIZE: usize = size_of::<Description<u64>>();

/// The header of an ELF file with its program headers: kind, offset, address, length.
fn elf(kind: u16, programs: &[(u32, u64, u64, u64)]) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(16, 0);
    bytes.extend(kind.to_le_bytes());
    bytes.extend(EM_X86_64.0.to_le_bytes());
    bytes.extend(1u32.to_le_bytes());
    // The entry, where the program headers and the section headers are.
    bytes.extend([0u64, 64, 0].map(u64::to_le_bytes).concat());
    bytes.extend(0u32.to_le_bytes());
    let count = programs.len() as u16;
    bytes.extend([64u16, 56, count, 0, 0, 0].map(u16::to_le_bytes).concat());
    for &(kind, offset, address, length) in programs {
        bytes.extend([kind, 4].map(u32::to_le_bytes).concat());
        bytes.extend(
            [offset, address, address, length, length, 4]
                .map(u64::to_le_bytes)
                .concat(),
        );
    }
    bytes
}

fn note(name: &[u8], kind: u32, contents: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let sizes = [name.len() as u32, contents.len() as u32, kind];
    bytes.extend(sizes.map(u32::to_le_bytes).concat());
    for part in [name, contents] {
        bytes.extend(part);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// The memory of a program with a library that describes itself like this.
fn program(description: &[u8], mut rest: Vec<u8>) -> Vec<u8> {
    let begin = 64 + 2 * 56;
    let contents = begin + 12 + 8;
    let far = DESCRIBED - (START + contents);
    let note = note(NOTE_NAME, NOTE_TYPE, &far.to_le_bytes());
    let mut bytes = elf(
        3,
        &[
            (PT_LOAD.0, 0, 0, LENGTH),
            (PT_NOTE.0, begin, begin, note.len() as u64),
        ],
    );
    bytes.extend(note);
    bytes.resize((DESCRIBED - START) as usize, 0);
    bytes.extend(description);
    rest.resize(LENGTH as usize - bytes.len(), 0);
    bytes.extend(rest);
    bytes
}

/// A core file with that memory.
fn core(memory: &[u8], status: &[u8]) -> Vec<u8> {
    let mut files = [1, 4096, START, START + LENGTH, 0]
        .map(u64::to_le_bytes)
        .concat();
    files.extend(b"/nowhere/library\0");
    let mut notes = note(b"CORE\0", NT_FILE.0, &files);
    notes.extend(note(b"CORE\0", NT_PRSTATUS.0, status));
    let at = 64 + 2 * 56;
    let mut bytes = elf(
        ET_CORE.0,
        &[
            (PT_NOTE.0, at, 0, notes.len() as u64),
            (PT_LOAD.0, at + notes.len() as u64, START, LENGTH),
        ],
    );
    bytes.extend(notes);
    bytes.extend(memory);
    bytes
}

/// Looks at everything, as the command does. Returns how many threads there are.
fn look(bytes: Vec<u8>) -> Option<usize> {
    let memory = Memory::of_core_bytes(Box::new(bytes)).ok()?;
    let found = Threads::find(&memory).ok()?;
    let files = Files::open(&memory);
    let objects = Objects::new(&files);
    let all = found.all().ok()?;
    let mut unwinder = Unwinder::new(&memory, &objects);
    for thread in &all {
        if let Some(registers) = thread.registers.clone() {
            unwinder.frames(registers);
        }
    }
    memory.forget();
    assert!(all.iter().all(|thread| found.stands_still(thread)));
    Some(all.len())
}

/// Addresses in the memory, near its ends, and anything.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0..LENGTH / 8).prop_map(|at| START + 8 * at),
        1 => (0..64u64).prop_map(|at| START + LENGTH - at),
        1 => Just(0),
        1 => any::<u64>(),
    ]
}

prop_compose! {
    fn description()(
        addresses in prop::collection::vec(address(), 5),
        most in prop_oneof![0..64u64, any::<u64>()],
        offsets in prop::collection::vec(prop_oneof![9 => 0..512u32, 1 => any::<u32>()], Offsets::NAMES.len()),
        meanings in prop::collection::vec(0..8u8, 44),
    ) -> Vec<u8> {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend([VERSION, SIZE as u32].map(u32::to_le_bytes).concat());
        bytes.extend(addresses.iter().chain([&most]).flat_map(|word| word.to_le_bytes()));
        bytes.extend(offsets.iter().flat_map(|offset| offset.to_le_bytes()));
        bytes.extend(meanings);
        bytes.resize(SIZE, 0);
        bytes
    }
}

fn words(count: usize) -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![6 => address(), 2 => 0..16u64];
    prop::collection::vec(word, 0..count)
        .prop_map(|words| words.into_iter().flat_map(u64::to_le_bytes).collect())
}

proptest! {
    #[test]
    fn any_memory_has_an_answer(
        description in description(),
        rest in words(1500),
        status in words(50),
    ) {
        look(core(&program(&description, rest), &status));
    }

    #[test]
    fn any_core_file_has_an_answer(
        description in description(),
        change in prop::collection::vec((0..4096usize, any::<u8>()), 0..40),
        length in 0..40_000usize,
    ) {
        let mut bytes = core(&program(&description, Vec::new()), &[0; 336]);
        for (at, byte) in change {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        bytes.truncate(length);
        look(bytes);
    }

    #[test]
    fn any_registers_have_frames(stack in words(500), sp in address(), bp in address(), ip in address()) {
        let bytes = core(&program(&[], stack), &[0; 336]);
        let memory = Memory::of_core_bytes(Box::new(bytes)).expect("a core file");
        let files = Files::open(&memory);
        let objects = Objects::new(&files);
        let mut registers = Registers::default();
        for (register, value) in [(SP, sp), (BP, bp), (IP, ip)] {
            registers.0[register] = Some(value);
        }
        let frames = Unwinder::new(&memory, &objects).frames(registers);
        prop_assert!(frames.len() <= 256);
    }
}

/// What the tests above begin from is understood.
#[test]
fn a_program_of_one_thread_is_understood() {
    let mut description = [MAGIC.to_le_bytes().to_vec(), vec![0; SIZE - 8]].concat();
    description[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let rest = DESCRIBED + SIZE as u64;
    // The runtime, the first thread, the table, how much of it was used: words behind the description.
    for at in 0..4 {
        let word = rest + 8 * at as u64;
        description[16 + 8 * at..24 + 8 * at].copy_from_slice(&word.to_le_bytes());
    }
    // All fields of the thread are at its beginning, where there is 0.
    let words = [1, rest + 0x100, 0, 0].map(u64::to_le_bytes).concat();
    assert_eq!(
        look(core(&program(&description, words), &[0; 336])),
        Some(1)
    );
    description[8] = 99;
    assert_eq!(
        look(core(&program(&description, Vec::new()), &[0; 336])),
        None
    );
}
