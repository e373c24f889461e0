//! Text where nothing may be allocated: in the runtime, and while the process ends.

use std::fmt;

/// A buffer on the stack. What does not fit is cut off.
pub struct Text<const ROOM: usize> {
    bytes: [u8; ROOM],
    len: usize,
}

impl<const ROOM: usize> Text<ROOM> {
    pub const fn new() -> Self {
        Text {
            bytes: [0; ROOM],
            len: 0,
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<const ROOM: usize> fmt::Write for Text<ROOM> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let take = text.len().min(ROOM - self.len);
        self.bytes[self.len..self.len + take].copy_from_slice(&text.as_bytes()[..take]);
        self.len += take;
        Ok(())
    }
}
