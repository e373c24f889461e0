//! Hands the process over to the dynamic linker, as the kernel does for a program that names one (PT_INTERP).
//!
//! 1. The linker's segments are mapped, one range for all of them.
//! 2. It finds the program by the auxiliary vector (getauxval(3)): its headers, and where it starts. The headers are a copy
//!    that names the linker, and says where itself is: from that entry the linker works out where the program is.
//! 3. The stack is as the kernel made it, apart from that, and the linker begins.

use std::mem::MaybeUninit;

use super::call::{call, clear};
use super::stack::Stack;

/// One program header.
#[derive(Clone, Copy)]
#[repr(C)]
struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    in_file: u64,
    in_memory: u64,
    alignment: u64,
}

/// The start of an ELF file.
#[repr(C)]
struct Start {
    ident: [u8; 16],
    kind: u16,
    machine: u16,
    version: u32,
    entry: u64,
    headers: u64,
    sections: u64,
    flags: u32,
    size: u16,
    header_size: u16,
    header_count: u16,
    rest: [u16; 3],
}

const MOST: usize = 30;
const PAGE: usize = 4096;

/// The copy of the program's headers, with two more. It lives as long as the process.
static mut HEADERS: MaybeUninit<[Header; MOST + 2]> = MaybeUninit::uninit();

const NAME: &str = concat!(env!("UPCALL_INTERPRETER"), "\0");

/// Prepares the process for the dynamic linker, and returns the address at which that begins. `base` is where the program
/// is, `start` the address of its C start-up.
///
/// # Safety
///
/// The process has only just started; the stack is its own.
pub unsafe fn prepare(stack: &Stack, base: usize, start: usize) -> usize {
    // SAFETY: the caller's promise.
    match unsafe { headers(stack, base).and_then(|()| load()) } {
        Some((at, entry)) => {
            let values = [(libc::AT_BASE, at), (libc::AT_ENTRY, start)];
            let mut number = 0;
            while number < values.len() {
                let (key, value) = values[number];
                match stack.auxiliary(key) {
                    // SAFETY: a word of the process's own stack.
                    Some(place) => unsafe { place.write(value) },
                    None => fail(),
                }
                number += 1;
            }
            entry
        }
        None => fail(),
    }
}

/// Copies the headers, and puts two before them.
unsafe fn headers(stack: &Stack, base: usize) -> Option<()> {
    let (place, number) = (
        stack.auxiliary(libc::AT_PHDR)?,
        stack.auxiliary(libc::AT_PHNUM)?,
    );
    // SAFETY: the kernel says where the program's headers are, and how many; nobody else uses the copy.
    unsafe {
        let count = number.read();
        if count > MOST {
            return None;
        }
        let copy: *mut Header = (&raw mut HEADERS).cast();
        let about = |kind, address: usize, size: usize| Header {
            kind,
            flags: libc::PF_R,
            offset: 0,
            address: (address.wrapping_sub(base)) as u64,
            physical: 0,
            in_file: size as u64,
            in_memory: size as u64,
            alignment: 1,
        };
        let size = (count + 2) * size_of::<Header>();
        copy.write(about(libc::PT_PHDR, copy as usize, size));
        copy.add(1)
            .write(about(libc::PT_INTERP, NAME.as_ptr() as usize, NAME.len()));
        let original = place.read() as *const Header;
        let mut at = 0;
        while at < count {
            let mut header = original.add(at).read_volatile();
            if header.kind == libc::PT_PHDR {
                header.kind = libc::PT_NULL;
            }
            copy.add(at + 2).write_volatile(header);
            at += 1;
        }
        place.write(copy as usize);
        number.write(count + 2);
    }
    Some(())
}

/// Maps the dynamic linker. Returns where it is, and where it begins.
unsafe fn load() -> Option<(usize, usize)> {
    // SAFETY: system calls that get what they ask for: a C string, buffers that are large enough, and addresses in a range
    // that was mapped here.
    unsafe {
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
        let words = [
            libc::AT_FDCWD as usize,
            NAME.as_ptr() as usize,
            flags,
            0,
            0,
            0,
        ];
        let file = usize::try_from(call(libc::SYS_openat, words)).ok()?;
        let mut place = MaybeUninit::<[u64; 512]>::uninit();
        let words = [file, place.as_mut_ptr() as usize, PAGE, 0, 0, 0];
        let got = usize::try_from(call(libc::SYS_pread64, words)).ok()?;
        let elf: *const Start = place.as_ptr().cast();
        let (first, count) = ((*elf).headers as usize, usize::from((*elf).header_count));
        let size = size_of::<Header>();
        if got < size_of::<Start>()
            || (*elf).header_size as usize != size
            || !first.is_multiple_of(8)
            || first.checked_add(count * size)? > got
        {
            return None;
        }
        let headers: *const Header = place.as_ptr().cast::<u8>().add(first).cast();
        let (mut low, mut high) = (usize::MAX, 0);
        let mut number = 0;
        while number < count {
            let header = &*headers.add(number);
            if header.kind == libc::PT_LOAD {
                low = low.min(header.address as usize & !(PAGE - 1));
                high = high.max(header.address.checked_add(header.in_memory)? as usize);
            }
            number += 1;
        }
        let length = high.checked_sub(low)?.checked_next_multiple_of(PAGE)?;
        let anonymous = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
        let words = [
            0,
            length,
            libc::PROT_NONE as usize,
            anonymous,
            usize::MAX,
            0,
        ];
        let range = mapped(words)?;
        let base = range.wrapping_sub(low);
        number = 0;
        while number < count {
            let header = &*headers.add(number);
            number += 1;
            if header.kind != libc::PT_LOAD {
                continue;
            }
            let start = base.wrapping_add(header.address as usize);
            let (page, offset) = (start & !(PAGE - 1), header.offset as usize & !(PAGE - 1));
            let file_end = start + header.in_file as usize;
            let end = start + header.in_memory as usize;
            let protection = protection(header.flags);
            let fixed = (libc::MAP_PRIVATE | libc::MAP_FIXED) as usize;
            mapped([page, file_end - page, protection, fixed, file, offset])?;
            if end > file_end {
                let next = file_end.next_multiple_of(PAGE);
                // To the page's end: the linker's first memory is there, and it must be zero.
                clear(file_end, next - file_end);
                if end > next {
                    let anonymous = anonymous | libc::MAP_FIXED as usize;
                    mapped([next, end - next, protection, anonymous, usize::MAX, 0])?;
                }
            }
        }
        call(libc::SYS_close, [file, 0, 0, 0, 0, 0]);
        Some((base, base.wrapping_add((*elf).entry as usize)))
    }
}

unsafe fn mapped(words: [usize; 6]) -> Option<usize> {
    // SAFETY: the caller's promise.
    let answer = unsafe { call(libc::SYS_mmap, words) };
    (answer > 0).then_some(answer as usize)
}

fn protection(flags: u32) -> usize {
    let bit = |flag, protection: i32| if flags & flag == 0 { 0 } else { protection };
    (bit(libc::PF_R, libc::PROT_READ)
        | bit(libc::PF_W, libc::PROT_WRITE)
        | bit(libc::PF_X, libc::PROT_EXEC)) as usize
}

/// Says what the kernel says of a program whose dynamic linker is not there.
fn fail() -> ! {
    const SAID: &str = concat!(
        "upcall: cannot load the dynamic linker ",
        env!("UPCALL_INTERPRETER"),
        "\n"
    );
    let status = crate::status::EXIT_OURS as usize;
    // SAFETY: writes a constant, and ends.
    unsafe {
        call(
            libc::SYS_write,
            [2, SAID.as_ptr() as usize, SAID.len(), 0, 0, 0],
        );
        loop {
            call(libc::SYS_exit_group, [status, 0, 0, 0, 0, 0]);
        }
    }
}
