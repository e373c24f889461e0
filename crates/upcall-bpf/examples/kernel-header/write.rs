//! The types of the kernel, as C.

use std::collections::BTreeSet;
use std::fmt::Write;

use libbpf_rs::btf::types::{Int, Ptr, Struct, Typedef};
use libbpf_rs::btf::{Btf, BtfType, ReferencesType};

/// What the programs use.
const WANTED: [(&str, &[&str]); 3] = [
    ("signal_struct", &["live"]),
    ("task_struct", &["__state", "pid", "tgid", "signal"]),
    ("pt_regs", &["orig_ax"]),
];

const BEGIN: &str = "\
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs need of the kernel's types: the fields that they use, with the types that the kernel gives them. Where
 * they are is found when the object is loaded (CO-RE). Written by
 *   cargo run -p upcall-bpf --features bpf --example kernel-header
 * from the BTF of a running kernel, and compared with it by a test. Change the list there.
 */
#ifndef UPCALL_BPF_KERNEL_H
#define UPCALL_BPF_KERNEL_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
";

const END: &str = "
#pragma clang attribute pop

#endif
";

/// The header for the running kernel.
///
/// # Errors
///
/// It has no BTF, or not these types.
pub fn header() -> Result<String, String> {
    let btf = Btf::from_vmlinux().map_err(|error| format!("no BTF of the kernel: {error}"))?;
    let mut before = String::new();
    let mut known = BTreeSet::new();
    let mut structures = String::new();
    for (name, fields) in WANTED {
        let found = btf
            .type_by_name::<Struct<'_>>(name)
            .ok_or_else(|| format!("no struct {name}"))?;
        let _ = write!(structures, "\nstruct {name} {{\n");
        for field in fields {
            let member = found
                .iter()
                .find(|member| member.name.is_some_and(|it| it == *field))
                .ok_or_else(|| format!("struct {name} has no {field}"))?;
            let kind = btf
                .type_by_id::<BtfType<'_>>(member.ty)
                .ok_or_else(|| format!("{name}.{field} has no type"))?;
            let (kind, star) = written(&btf, kind, &mut before, &mut known)?;
            let _ = writeln!(structures, "  {kind} {star}{field};");
        }
        structures.push_str("};\n");
    }
    Ok(format!("{BEGIN}\n{before}{structures}{END}"))
}

/// A type, as it is written before a name, and what is written next to that. What must be declared first goes to `before`.
fn written(
    btf: &Btf<'_>,
    kind: BtfType<'_>,
    before: &mut String,
    known: &mut BTreeSet<String>,
) -> Result<(String, &'static str), String> {
    let kind = plain(kind);
    let name = |kind: &BtfType<'_>| -> Result<String, String> {
        let name = kind.name().ok_or("a type without a name")?;
        Ok(name.to_string_lossy().into_owned())
    };
    if let Ok(pointer) = Ptr::try_from(kind) {
        let target = plain(pointer.referenced_type());
        Struct::try_from(target).map_err(|_| "a pointer to something else than a structure")?;
        return Ok((format!("struct {}", name(&target)?), "*"));
    }
    if Int::try_from(kind).is_ok() {
        return Ok((name(&kind)?, ""));
    }
    let typedef = Typedef::try_from(kind).map_err(|_| "a type of another kind")?;
    let own = name(&kind)?;
    if known.contains(&own) {
        return Ok((own, ""));
    }
    let target = plain(typedef.referenced_type());
    let text = match Struct::try_from(target) {
        Ok(structure) => {
            let mut fields = String::new();
            for member in structure.iter() {
                let kind = btf
                    .type_by_id::<BtfType<'_>>(member.ty)
                    .ok_or("a field without a type")?;
                let (kind, star) = written(btf, kind, before, known)?;
                let name = member.name.ok_or("a field without a name")?;
                let _ = writeln!(fields, "  {kind} {star}{};", name.to_string_lossy());
            }
            format!("typedef struct {{\n{fields}}} {own};\n")
        }
        Err(_) => {
            let (kind, star) = written(btf, target, before, known)?;
            format!("typedef {kind} {star}{own};\n")
        }
    };
    before.push_str(&text);
    known.insert(own.clone());
    Ok((own, ""))
}

/// The type without `const` and its like.
fn plain(kind: BtfType<'_>) -> BtfType<'_> {
    let mut kind = kind;
    while kind.is_mod()
        && let Some(next) = kind.next_type()
    {
        kind = next;
    }
    kind
}
