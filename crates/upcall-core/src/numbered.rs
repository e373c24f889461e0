//! Enums that are kept as numbers in words: [`numbered_enum`] makes such an enum with its one decoder, and
//! [`AtomicEnum`] is a word that several kernel threads read and write.
//!
//! A number that is no variant's breaks an invariant: with debug assertions the decoder panics.

use core::marker::PhantomData;

use crate::sync::{AtomicU32, Ordering};

/// An enum that [`numbered_enum`] has made.
///
/// # Safety
///
/// Its representation is the number.
pub unsafe trait Numbered: Copy {
    /// The number that is written.
    fn number(self) -> u32;

    /// The variant of a number. Without debug assertions, a number that is no variant's is the first one's.
    fn of(number: u32) -> Self;

    /// The variant of its number, unchecked but for debug assertions.
    ///
    /// # Safety
    ///
    /// The number must be that of a variant.
    #[inline(always)]
    unsafe fn of_known(number: u32) -> Self {
        debug_assert_eq!(Self::of(number).number(), number);
        // SAFETY: its representation is the number.
        unsafe { core::mem::transmute_copy(&number) }
    }
}

/// Makes an enum whose variants are kept as their numbers.
#[macro_export]
macro_rules! numbered_enum {
    ($(#[$attribute:meta])* $visibility:vis enum $name:ident {
        $($(#[$of_variant:meta])* $variant:ident = $number:literal),+ $(,)?
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u32)]
        $visibility enum $name {
            $($(#[$of_variant])* $variant = $number),+
        }

        // SAFETY: see `repr`.
        unsafe impl $crate::Numbered for $name {
            #[inline(always)]
            fn number(self) -> u32 {
                self as u32
            }

            #[inline(always)]
            fn of(number: u32) -> Self {
                const ALL: &[$name] = &[$($name::$variant),+];
                let is_known = $(number == $number)||+;
                debug_assert!(is_known, "{number} is no {}", stringify!($name));
                if is_known {
                    // SAFETY: the number of a variant.
                    unsafe { core::mem::transmute::<u32, $name>(number) }
                } else {
                    ALL[0]
                }
            }
        }
    };
}

pub use numbered_enum;

/// Holds one of the variants.
pub struct AtomicEnum<T>(AtomicU32, PhantomData<T>);

impl<T: Numbered> AtomicEnum<T> {
    /// Holds this one.
    #[inline]
    pub const fn new(value: T) -> Self {
        // SAFETY: its representation is a number.
        let number = unsafe { core::mem::transmute_copy(&value) };
        AtomicEnum(AtomicU32::new(number), PhantomData)
    }

    #[inline(always)]
    fn of(number: u32) -> T {
        // SAFETY: only numbers of variants are stored in the word.
        unsafe { T::of_known(number) }
    }

    /// As of an atomic integer.
    #[inline(always)]
    pub fn load(&self, order: Ordering) -> T {
        Self::of(self.0.load(order))
    }

    /// As of an atomic integer.
    #[inline(always)]
    pub fn store(&self, value: T, order: Ordering) {
        self.0.store(value.number(), order);
    }

    /// As of an atomic integer.
    ///
    /// # Errors
    ///
    /// What it held, if that was another variant than `old`.
    #[inline(always)]
    pub fn compare_exchange(
        &self,
        old: T,
        new: T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<T, T> {
        self.0
            .compare_exchange(old.number(), new.number(), success, failure)
            .map(Self::of)
            .map_err(Self::of)
    }
}

impl<T: Numbered + Default> Default for AtomicEnum<T> {
    #[inline]
    fn default() -> Self {
        Self::new(T::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    numbered_enum! {
        enum Colour {
            Red = 0,
            Green = 2,
            Blue = 7,
        }
    }

    #[test]
    fn a_word_holds_the_variant_that_was_put_there() {
        let word = AtomicEnum::new(Colour::Red);
        let (relaxed, all) = (
            Ordering::Relaxed,
            [Colour::Red, Colour::Green, Colour::Blue],
        );
        for colour in all {
            assert_eq!(Colour::of(colour.number()), colour);
            word.store(colour, relaxed);
            assert_eq!(word.load(relaxed), colour);
        }
        let change = |old, new| word.compare_exchange(old, new, relaxed, relaxed);
        assert_eq!(change(Colour::Red, Colour::Green), Err(Colour::Blue));
        assert_eq!(change(Colour::Blue, Colour::Red), Ok(Colour::Blue));
        assert_eq!(word.load(relaxed), Colour::Red);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "1 is no Colour")]
    fn a_number_that_nobody_has_written_is_found() {
        let _ = Colour::of(1);
    }
}
