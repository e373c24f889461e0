//! The unwinder of the preloaded library is the program's, if it has one.
//!
//! The standard library calls functions of libgcc_s. To load that for every program takes as long as all else at start, and
//! only a panic needs it, for its backtrace. So `build.rs` makes the linker resolve these functions to those here, in that
//! library alone. They call the process's own, when they are called.

use core::ffi::CStr;

// The linker finds them by name (`build.rs`); no program does.
macro_rules! forward {
    ($($own:ident $name:literal,)*) => {
        core::arch::global_asm!($(concat!(".hidden ", stringify!($own)),)*);
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $own(first: usize, second: usize, third: usize) -> usize {
                call($name, [first, second, third])
            }
        )*
    };
}

forward! {
    upcall_own__Unwind_Backtrace c"_Unwind_Backtrace",
    upcall_own__Unwind_GetDataRelBase c"_Unwind_GetDataRelBase",
    upcall_own__Unwind_GetIP c"_Unwind_GetIP",
    upcall_own__Unwind_GetIPInfo c"_Unwind_GetIPInfo",
    upcall_own__Unwind_GetLanguageSpecificData c"_Unwind_GetLanguageSpecificData",
    upcall_own__Unwind_GetRegionStart c"_Unwind_GetRegionStart",
    upcall_own__Unwind_GetTextRelBase c"_Unwind_GetTextRelBase",
    upcall_own__Unwind_Resume c"_Unwind_Resume",
    upcall_own__Unwind_SetGR c"_Unwind_SetGR",
    upcall_own__Unwind_SetIP c"_Unwind_SetIP",
}

/// Calls a function of the process's unwinder. Without one a backtrace has no frames; the other functions are for the
/// frames of one.
fn call(name: &CStr, [first, second, third]: [usize; 3]) -> usize {
    const END_OF_STACK: usize = 5;
    // SAFETY: RTLD_DEFAULT searches the loaded objects.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        return END_OF_STACK;
    }
    // SAFETY: the functions of these names have at most three arguments, all in registers, and a result in one, or none.
    unsafe {
        let function = core::mem::transmute::<
            *mut libc::c_void,
            unsafe extern "C-unwind" fn(usize, usize, usize) -> usize,
        >(found);
        function(first, second, third)
    }
}
