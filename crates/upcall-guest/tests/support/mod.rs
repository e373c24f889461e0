//! An ELF file as an image, without loading it.
#![allow(dead_code, reason = "not every test uses both")]

use goblin::elf::program_header::{PF_W, PF_X, PT_GNU_EH_FRAME, PT_LOAD};
use upcall_guest::object::{Image, Part};

/// The image of the ELF file whose content is `bytes`, at the addresses that the file names.
pub fn image(bytes: &[u8]) -> Image<'_> {
    try_image(bytes).expect("an ELF file")
}

/// As [`image`], of a file that may be anything.
pub fn try_image(bytes: &[u8]) -> Option<Image<'_>> {
    let elf = goblin::elf::Elf::parse(bytes).ok()?;
    let headers = &elf.program_headers;
    Some(Image {
        parts: headers
            .iter()
            .filter(|h| h.p_type == PT_LOAD && h.p_flags & PF_W == 0)
            .map(|h| {
                Some(Part {
                    start: h.p_vaddr as usize,
                    bytes: bytes.get(h.file_range())?,
                    executable: h.p_flags & PF_X != 0,
                })
            })
            .collect::<Option<_>>()?,
        eh_frame_hdr: headers
            .iter()
            .find(|h| h.p_type == PT_GNU_EH_FRAME)
            .map(|h| h.p_vaddr as usize),
    })
}
