//! The search of a whole text for branches, with vector instructions.

use core::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128,
    _mm_set1_epi8,
};

/// Sixty-four places at a time: that many outcomes for one unpredictable branch of our own.
const BLOCK: usize = 64;

/// Calls `visit` with the place of everything in `bytes` that looks like the opcode of a branch
/// with a four-byte distance: call, jmp, and 0f 80 to 0f 8f. What stands too close to the end to
/// have its distance inside may be left out.
pub fn each_long_branch(bytes: &[u8], mut visit: impl FnMut(usize)) {
    let mut at = 0;
    while at + BLOCK < bytes.len() {
        let mut mask = 0u64;
        for part in (0..BLOCK).step_by(16) {
            // SAFETY: `at + 64` is inside the slice, so all loads are; SSE2 belongs to x86-64.
            let found = unsafe {
                let place = bytes.as_ptr().add(at + part);
                let here = _mm_loadu_si128(place.cast::<__m128i>());
                let next = _mm_loadu_si128(place.add(1).cast::<__m128i>());
                let is = |value: __m128i, bits: u8, wanted: u8| {
                    let bits = _mm_and_si128(value, _mm_set1_epi8(bits as i8));
                    _mm_cmpeq_epi8(bits, _mm_set1_epi8(wanted as i8))
                };
                let near = is(here, 0xfe, 0xe8);
                let conditional = _mm_and_si128(is(here, 0xff, 0x0f), is(next, 0xf0, 0x80));
                _mm_movemask_epi8(_mm_or_si128(near, conditional)) as u16
            };
            mask |= u64::from(found) << part;
        }
        while mask != 0 {
            visit(at + mask.trailing_zeros() as usize);
            mask &= mask - 1;
        }
        at += BLOCK;
    }
    for (offset, pair) in bytes[at..].windows(2).enumerate() {
        if pair[0] & 0xfe == 0xe8 || pair[0] == 0x0f && pair[1] & 0xf0 == 0x80 {
            visit(at + offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::each_long_branch;

    #[test]
    fn branches_are_found_at_every_place_of_a_block() {
        for length in (6..150).step_by(3) {
            for place in 0..length - 5 {
                for opcode in [&[0xe8][..], &[0xe9], &[0x0f, 0x80], &[0x0f, 0x8f]] {
                    let mut bytes = vec![0x0f; length];
                    bytes[place..place + opcode.len()].copy_from_slice(opcode);
                    let mut found = Vec::new();
                    each_long_branch(&bytes, |at| found.push(at));
                    assert_eq!(found, [place], "{opcode:x?} of {length}");
                }
            }
        }
    }
}
