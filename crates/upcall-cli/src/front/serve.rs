//! `upcall run PROGRAM ARGS` by what is remembered about the program.
//!
//! 1. The words must be plain, and no variable may change what they mean.
//! 2. The program is searched for as execvp(3) does it. It must be a file that the user may read and execute.
//! 3. The file about it must belong to the user, be writable by nobody else, and be whole.
//! 4. Each of its conditions must hold now.
//! 5. Its settings are put into the environment, and the program is executed.
//!
//! Whatever is not so, the complete command decides. It finds the process as if this had not run.

use std::mem::MaybeUninit;
use std::ptr;

use super::call::{Text, call, position, same};
use super::stack::{Stack, Variables};
use super::verdict::{self, Record};

// Small: what is longer is left to the complete command, and each page of the stack that is touched costs.
const LONGEST_PATH: usize = 512;
const MOST_VARIABLES: usize = 250;
const OTHERS_WRITE: u32 = 0o022;

/// The link that leads to this command.
pub const COMMAND: &[u8] = b"/proc/self/exe";

type Path = [MaybeUninit<u8>; LONGEST_PATH];

/// Where the program's name is in the words of `upcall run PROGRAM ARGS`; `None` if they say more.
pub fn plain<'a>(word: impl Fn(usize) -> Option<&'a [u8]>) -> Option<usize> {
    if !same(word(1)?, b"run") {
        return None;
    }
    let first = word(2)?;
    let at = if same(first, b"--") { 3 } else { 2 };
    let program = word(at)?;
    let is_flag = *program.first()? == b'-';
    (!is_flag).then_some(at)
}

/// Executes the program, if all is as remembered. Otherwise nothing has happened.
///
/// # Safety
///
/// The stack is the process's own.
pub unsafe fn serve(stack: &Stack) -> Option<()> {
    let at = plain(|number| stack.argument(number))?;
    // SAFETY: the process's own.
    let variables = unsafe { Variables::read(stack.variables)? };
    if variables.count > MOST_VARIABLES || !is_free(stack)? {
        return None;
    }
    let mut place: Path = [const { MaybeUninit::uninit() }; LONGEST_PATH];
    let path = search(stack.argument(at)?, variables.path, &mut place)?;
    let mut place: Path = [const { MaybeUninit::uninit() }; LONGEST_PATH];
    let command = read_link(b"/proc/self/exe\0", &mut place)?;
    let found = status(libc::AT_FDCWD as usize, path, 0)?;
    if u32::from(found.stx_mode) & libc::S_IFMT != libc::S_IFREG {
        return None;
    }
    let [device, inode, size, seconds, nanoseconds] = node(&found);
    let name = path.get(..path.len() - 1)?;
    let program = [
        device,
        inode,
        size,
        seconds,
        nanoseconds,
        verdict::sum(name, 0),
    ];
    let user = auxiliary(stack, libc::AT_EUID)? as u32;
    let slot = verdict::slot(device, inode, command);
    let mut place = [const { MaybeUninit::uninit() }; verdict::LONGEST];
    let file = remembered(variables.base?, slot, user, &mut place)?;
    let records = verdict::open(file, &program)?;

    let mut pointers = [const { MaybeUninit::<*const u8>::uninit() }; MOST_VARIABLES + 8];
    let mut count = 0;
    while count < variables.count {
        // SAFETY: so many are there.
        let variable = unsafe { stack.variables.add(count).read_volatile() };
        pointers.get_mut(count)?.write(variable);
        count += 1;
    }
    let mut rest = records;
    while let Some(record) = rest.next().ok()? {
        if record.kind == verdict::SETTING {
            pointers.get_mut(count)?.write(record.name.as_ptr());
            count += 1;
        } else if !holds(&record, command)? {
            return None;
        }
    }
    pointers.get_mut(count)?.write(ptr::null());
    // SAFETY: a C string, and null-terminated arrays of C strings.
    unsafe {
        let arguments = stack.arguments.add(at) as usize;
        let variables = pointers.as_ptr() as usize;
        let words = [path.as_ptr() as usize, arguments, variables, 0, 0, 0];
        call(libc::SYS_execve, words);
    }
    None
}

/// Returns true if the process has only its user's own rights, no limit of its addresses, and no filter forbids it calls.
fn is_free(stack: &Stack) -> Option<bool> {
    // SAFETY: asks only.
    let filter = unsafe {
        call(
            libc::SYS_prctl,
            [libc::PR_GET_SECCOMP as usize, 0, 0, 0, 0, 0],
        )
    };
    let mut limit = [0u64; 2];
    // SAFETY: writes two words.
    let asked = unsafe {
        call(
            libc::SYS_prlimit64,
            [
                0,
                libc::RLIMIT_AS as usize,
                0,
                limit.as_mut_ptr() as usize,
                0,
                0,
            ],
        )
    };
    let value = |key| auxiliary(stack, key);
    Some(
        filter == 0
            && asked == 0
            && limit[0] == libc::RLIM_INFINITY
            && value(libc::AT_SECURE)? == 0
            && value(libc::AT_UID)? == value(libc::AT_EUID)?
            && value(libc::AT_GID)? == value(libc::AT_EGID)?,
    )
}

fn auxiliary(stack: &Stack, key: u64) -> Option<usize> {
    // SAFETY: a word of the stack.
    stack.auxiliary(key).map(|place| unsafe { place.read() })
}

/// Returns the path of a program, with a zero byte, if it may be read and executed; `None` also where that is not certain.
fn search<'a>(name: &[u8], path: Option<&[u8]>, place: &'a mut Path) -> Option<&'a [u8]> {
    if position(name, b'/').is_some() {
        let candidate = joined(place, &[name, b"\0"])?;
        return (usable(candidate)? == Usable::Yes).then_some(candidate);
    }
    let mut rest = path?;
    loop {
        let end = position(rest, b':');
        let directory = rest.get(..end.unwrap_or(rest.len()))?;
        let parts: [&[u8]; 4] = match directory.last() {
            None => [b"./", name, b"\0", b""],
            Some(b'/') => [directory, name, b"\0", b""],
            Some(_) => [directory, b"/", name, b"\0"],
        };
        let length = joined(place, &parts)?.len();
        // SAFETY: so much was written.
        let candidate = unsafe { std::slice::from_raw_parts(place.as_ptr().cast(), length) };
        if usable(candidate)? == Usable::Yes {
            return Some(candidate);
        }
        rest = rest.get(end? + 1..)?;
    }
}

#[derive(PartialEq, Eq)]
enum Usable {
    Yes,
    Absent,
}

fn usable(path: &[u8]) -> Option<Usable> {
    let words = [
        libc::AT_FDCWD as usize,
        path.as_ptr() as usize,
        (libc::R_OK | libc::X_OK) as usize,
        libc::AT_EACCESS as usize,
        0,
        0,
    ];
    // SAFETY: a C string.
    match unsafe { call(libc::SYS_faccessat2, words) } {
        0 => Some(Usable::Yes),
        answer if [-libc::ENOENT as isize, -libc::ENOTDIR as isize].contains(&answer) => {
            Some(Usable::Absent)
        }
        _ => None,
    }
}

fn joined<'a>(place: &'a mut [MaybeUninit<u8>], parts: &[&[u8]]) -> Option<&'a [u8]> {
    let length = {
        let mut text = Text::new(place);
        let mut number = 0;
        while number < parts.len() {
            text.push(parts.get(number)?)?;
            number += 1;
        }
        text.bytes().len()
    };
    // SAFETY: so much was written.
    Some(unsafe { std::slice::from_raw_parts(place.as_ptr().cast(), length) })
}

/// Returns where a symbolic link leads. The name ends with a zero byte.
fn read_link<'a>(name: &[u8], place: &'a mut Path) -> Option<&'a [u8]> {
    let (to, room) = (place.as_mut_ptr() as usize, place.len());
    let words = [
        libc::AT_FDCWD as usize,
        name.as_ptr() as usize,
        to,
        room,
        0,
        0,
    ];
    // SAFETY: a C string, and room for the answer.
    let length = usize::try_from(unsafe { call(libc::SYS_readlinkat, words) }).ok()?;
    // SAFETY: so much was written.
    (length < room).then(|| unsafe { std::slice::from_raw_parts(place.as_ptr().cast(), length) })
}

fn status(directory: usize, name: &[u8], flags: i32) -> Option<libc::statx> {
    let mut data = MaybeUninit::<libc::statx>::uninit();
    let wanted = libc::STATX_BASIC_STATS as usize;
    let to = data.as_mut_ptr() as usize;
    let words = [
        directory,
        name.as_ptr() as usize,
        flags as usize,
        wanted,
        to,
        0,
    ];
    // SAFETY: a C string, and room for the answer, which the kernel has written if it says so.
    unsafe { (call(libc::SYS_statx, words) == 0).then(|| data.assume_init()) }
}

fn node(found: &libc::statx) -> [u64; 5] {
    [
        u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor),
        found.stx_ino,
        found.stx_size,
        found.stx_ctime.tv_sec as u64,
        u64::from(found.stx_ctime.tv_nsec),
    ]
}

/// A descriptor, closed when it is dropped.
struct Open(usize);

impl Open {
    fn at(directory: usize, name: &[u8], flags: i32) -> Option<Self> {
        let flags = (flags | libc::O_CLOEXEC) as usize;
        let words = [directory, name.as_ptr() as usize, flags, 0, 0, 0];
        // SAFETY: a C string.
        let opened = unsafe { call(libc::SYS_openat, words) };
        usize::try_from(opened).ok().map(Self)
    }

    /// Returns what it is, if it belongs to the user alone.
    fn own(&self, user: u32) -> Option<libc::statx> {
        let found = status(self.0, b"\0", libc::AT_EMPTY_PATH)?;
        let is_own = found.stx_uid == user && u32::from(found.stx_mode) & OTHERS_WRITE == 0;
        is_own.then_some(found)
    }

    fn read<'a>(&self, place: &'a mut [MaybeUninit<u8>]) -> Option<&'a [u8]> {
        let words = [self.0, place.as_mut_ptr() as usize, place.len(), 0, 0, 0];
        // SAFETY: room for the answer.
        let got = usize::try_from(unsafe { call(libc::SYS_read, words) }).ok()?;
        // SAFETY: so much was written.
        Some(unsafe { std::slice::from_raw_parts(place.as_ptr().cast(), got) })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours.
        unsafe { call(libc::SYS_close, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// Returns the bytes that are kept in a place.
fn remembered<'a>(
    base: (&[u8], &[u8]),
    slot: u64,
    user: u32,
    place: &'a mut [MaybeUninit<u8>],
) -> Option<&'a [u8]> {
    let directory = {
        let name = joined(place, &[base.0, base.1, super::DIRECTORY.as_bytes(), b"\0"])?;
        let flags = libc::O_DIRECTORY | libc::O_PATH | libc::O_NOFOLLOW;
        Open::at(libc::AT_FDCWD as usize, name, flags)?
    };
    directory.own(user)?;
    let name = name_of(slot);
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let file = Open::at(directory.0, &name, flags)?;
    let found = file.own(user)?;
    let length = usize::try_from(found.stx_size).ok()?;
    if u32::from(found.stx_mode) & libc::S_IFMT != libc::S_IFREG || length > verdict::LONGEST {
        return None;
    }
    let bytes = file.read(place.get_mut(..length)?)?;
    (bytes.len() == length).then_some(bytes)
}

/// Returns the name of a place, with a zero byte.
pub fn name_of(slot: u64) -> [u8; 4] {
    let digit = |shift: u32| match (slot >> shift & 15) as u8 {
        digit @ ..10 => b'0' + digit,
        digit => b'a' + digit - 10,
    };
    [digit(8), digit(4), digit(0), 0]
}

/// Returns true if the condition holds now.
fn holds(record: &Record<'_>, command: &[u8]) -> Option<bool> {
    let name = record.name;
    let equal = |numbers: &[u64]| {
        let mut at = 0;
        while at < numbers.len() {
            if verdict::number(record.data, at * 8)? != *numbers.get(at)? {
                return Some(false);
            }
            at += 1;
        }
        Some(record.data.len() == numbers.len() * 8)
    };
    let here = libc::AT_FDCWD as usize;
    match record.kind {
        verdict::NODE => equal(&node(&status(here, name, libc::AT_SYMLINK_NOFOLLOW)?)),
        verdict::PLACE => {
            let found = status(here, name, libc::AT_SYMLINK_NOFOLLOW)?;
            let mode = u64::from(found.stx_mode);
            equal(&[mode, u64::from(found.stx_uid), u64::from(found.stx_gid)])
        }
        verdict::LINK if same(name, b"/proc/self/exe\0") => Some(same(command, record.data)),
        verdict::LINK => {
            let mut place: Path = [const { MaybeUninit::uninit() }; LONGEST_PATH];
            Some(same(read_link(name, &mut place)?, record.data))
        }
        verdict::CONTENTS => {
            let file = Open::at(here, name, libc::O_RDONLY | libc::O_NONBLOCK)?;
            let mut place = [const { MaybeUninit::uninit() }; 256];
            Some(same(file.read(&mut place)?, record.data))
        }
        verdict::ABSENT => {
            let words = [here, name.as_ptr() as usize, libc::F_OK as usize, 0, 0, 0];
            // SAFETY: a C string.
            let answer = unsafe { call(libc::SYS_faccessat, words) };
            Some(answer == -libc::ENOENT as isize)
        }
        _ => None,
    }
}
