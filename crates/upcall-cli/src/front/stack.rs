//! What the kernel puts on a new process's stack: arguments, environment, auxiliary vector.

use super::call::{position, same, starts_with, text};

/// The stack of a process that has not run yet.
pub struct Stack {
    /// The arguments, null-terminated.
    pub arguments: *const *const u8,
    /// How many.
    pub count: usize,
    /// The environment, null-terminated.
    pub variables: *const *const u8,
    /// The auxiliary vector: pairs, until a key is 0.
    pub auxiliary: *mut [usize; 2],
}

impl Stack {
    /// Finds the parts.
    ///
    /// # Safety
    ///
    /// `pointer` is the stack pointer with which the kernel has started the process.
    pub unsafe fn at(pointer: *mut usize) -> Self {
        // SAFETY: the caller's promise: a count, arguments, null, variables, null, the auxiliary vector.
        unsafe {
            let count = pointer.read();
            let arguments = pointer.add(1);
            let variables = arguments.add(count + 1);
            let mut end = variables;
            while end.read() != 0 {
                end = end.add(1);
            }
            Self {
                arguments: arguments.cast(),
                count,
                variables: variables.cast(),
                auxiliary: end.add(1).cast(),
            }
        }
    }

    /// Returns an argument.
    pub fn argument(&self, number: usize) -> Option<&'static [u8]> {
        // SAFETY: so many are there, each a C string of the stack's.
        (number < self.count).then(|| unsafe { text(self.arguments.add(number).read()) })
    }

    /// Returns the place of a value in the auxiliary vector.
    pub fn auxiliary(&self, key: u64) -> Option<*mut usize> {
        let mut at = self.auxiliary;
        // SAFETY: the vector ends with a key 0.
        unsafe {
            while (*at)[0] != 0 {
                if (*at)[0] as u64 == key {
                    return Some(&raw mut (*at)[1]);
                }
                at = at.add(1);
            }
        }
        None
    }
}

/// What the front reads of the environment.
#[derive(Default)]
pub struct Variables {
    /// How many there are.
    pub count: usize,
    /// Where programs are searched for.
    pub path: Option<&'static [u8]>,
    /// Under which directory of the user's own something may be kept, and what comes between.
    pub base: Option<(&'static [u8], &'static [u8])>,
}

impl Variables {
    /// Reads them. `None` if one of them changes what `upcall run` does.
    ///
    /// # Safety
    ///
    /// `variables` is an environment.
    pub unsafe fn read(variables: *const *const u8) -> Option<Self> {
        let mut found = Self::default();
        let [mut runtime, mut cache, mut home] = [None; 3];
        loop {
            // SAFETY: null-terminated, of C strings.
            let variable = unsafe {
                let variable = variables.add(found.count).read();
                if variable.is_null() {
                    break;
                }
                text(variable)
            };
            found.count += 1;
            let changing: [&[u8]; 3] = [b"UPCALL_", b"LD_PRELOAD", b"GLIBC_TUNABLES"];
            if changing.iter().any(|start| starts_with(variable, start)) {
                return None;
            }
            let Some(end) = position(variable, b'=') else {
                continue;
            };
            let (name, value) = (variable.get(..end)?, variable.get(end + 1..)?);
            let first = |place: &mut Option<&'static [u8]>| *place = place.or(Some(value));
            if same(name, b"PATH") {
                first(&mut found.path);
            } else if same(name, b"XDG_RUNTIME_DIR") {
                first(&mut runtime);
            } else if same(name, b"XDG_CACHE_HOME") {
                first(&mut cache);
            } else if same(name, b"HOME") {
                first(&mut home);
            }
        }
        let absolute = |value: Option<&'static [u8]>| value.filter(|v| starts_with(v, b"/"));
        found.base = match (absolute(runtime), absolute(cache), absolute(home)) {
            (Some(base), ..) | (None, Some(base), _) => Some((base, b"/")),
            (None, None, Some(home)) => Some((home, b"/.cache/")),
            (None, None, None) => None,
        };
        Some(found)
    }
}
