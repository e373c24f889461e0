//! Numbers in the texts of procfs, without libc.

/// Writes a number in decimal, and tells how many digits that took. There must be room for ten.
pub fn put_number(into: &mut [u8], number: u32) -> usize {
    let mut digits = 1;
    while digits < 10 && number >= 10u32.pow(digits) {
        digits += 1;
    }
    for index in 0..digits {
        into[index as usize] = b'0' + (number / 10u32.pow(digits - 1 - index) % 10) as u8;
    }
    digits as usize
}

pub fn leading_number(text: &[u8]) -> Option<u32> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let number = digits.fold((0u32, false), |(number, _), byte| {
        let next = number.wrapping_mul(10).wrapping_add(u32::from(byte - b'0'));
        (next, true)
    });
    number.1.then_some(number.0)
}

/// Returns what follows a piece of a text.
pub fn after<'a>(text: &'a [u8], what: &[u8]) -> Option<&'a [u8]> {
    let at = text.windows(what.len()).position(|window| window == what)?;
    Some(&text[at + what.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_put_and_read() {
        for number in [0, 7, 10, 99, 100, 4_194_304, u32::MAX] {
            let mut text = [0u8; 12];
            put_number(&mut text, number);
            assert_eq!(
                text.split(|&byte| byte == 0).next(),
                Some(number.to_string().as_bytes())
            );
            assert_eq!(leading_number(&text), Some(number));
        }
        assert_eq!(leading_number(b"-1\n"), None);
        assert_eq!(
            after(b"flags:\t0\nPid:\t12\n", b"Pid:\t"),
            Some(&b"12\n"[..])
        );
    }
}
