//! What the types of a BPF object look like.

use std::path::Path;

use libbpf_rs::btf::types::{MemberAttr, Struct};
use libbpf_rs::btf::{Btf, HasSize};

/// The types of the object with this content.
pub fn types(name: &str, object: &[u8]) -> Btf<'static> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.bpf.o"));
    std::fs::write(&path, object).unwrap();
    Btf::from_path(&path).unwrap()
}

/// The structure's size in bytes, if the object uses it.
pub fn size(btf: &Btf<'_>, name: &str) -> Option<usize> {
    Some(btf.type_by_name::<Struct<'_>>(name)?.size())
}

/// Where the field begins, in bytes.
pub fn offset(btf: &Btf<'_>, name: &str, field: &str) -> usize {
    let found = btf.type_by_name::<Struct<'_>>(name).expect(name);
    let member = found
        .iter()
        .find(|member| member.name.is_some_and(|it| it == field));
    match member.map(|member| member.attr) {
        Some(MemberAttr::Normal { offset }) => offset as usize / 8,
        other => panic!("{name}.{field}: {other:?}"),
    }
}
