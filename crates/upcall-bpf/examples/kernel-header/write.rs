//! The types of the kernel, as C.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use libbpf_rs::btf::types::{Array, Enum, FuncProto, Int, Ptr, Struct, Typedef};
use libbpf_rs::btf::{Btf, BtfType, ReferencesType};

/// A header that is written.
pub struct Header {
    /// Its file, in `bpf`.
    pub file: &'static str,
    guard: &'static str,
    flag: &'static str,
    wanted: &'static [(&'static str, &'static [&'static str])],
}

/// What the programs that observe use.
pub const OBSERVER: Header = Header {
    file: "kernel.h",
    guard: "UPCALL_BPF_KERNEL_H",
    flag: "",
    wanted: &[
        ("signal_struct", &["live"]),
        ("task_struct", &["__state", "pid", "tgid", "signal"]),
        ("pt_regs", &["orig_ax"]),
    ],
};

/// What the scheduler uses.
pub const SCHEDULER: Header = Header {
    file: "scheduler-kernel.h",
    guard: "UPCALL_BPF_SCHEDULER_KERNEL_H",
    flag: " -- --scheduler",
    wanted: &[
        // Functions of the kernel take it.
        ("cpumask", &[]),
        (
            "sched_ext_entity",
            &["weight", "flags", "slice", "dsq_vtime"],
        ),
        (
            "task_struct",
            &[
                "flags",
                "pid",
                "tgid",
                "group_leader",
                "nr_cpus_allowed",
                "cpus_ptr",
                "scx",
            ],
        ),
        ("scx_exit_info", &["kind", "exit_code", "reason", "msg"]),
        ("bpf_iter_scx_dsq", &["__opaque"]),
        (
            "sched_ext_ops",
            &[
                "select_cpu",
                "enqueue",
                "dispatch",
                "running",
                "stopping",
                "runnable",
                "quiescent",
                "yield",
                "init_task",
                "init",
                "exit",
                "timeout_ms",
                "name",
            ],
        ),
    ],
};

impl Header {
    /// Its text, for the running kernel, or for the one whose BTF is in this file.
    ///
    /// # Errors
    ///
    /// There is no BTF, or it has not these types.
    pub fn text(&self, btf: Option<&Path>) -> Result<String, String> {
        let btf = match btf {
            None => Btf::from_vmlinux(),
            Some(path) => Btf::from_path(path),
        }
        .map_err(|error| format!("no BTF of the kernel: {error}"))?;
        let mut before = Before {
            btf: &btf,
            text: String::new(),
            known: BTreeSet::new(),
        };
        let mut structures = String::new();
        for (name, fields) in self.wanted {
            let found = btf
                .type_by_name::<Struct<'_>>(name)
                .ok_or_else(|| format!("no struct {name}"))?;
            let _ = write!(structures, "\nstruct {name} {{\n");
            for field in *fields {
                let member = found
                    .iter()
                    .find(|member| member.name.is_some_and(|it| it == *field))
                    .ok_or_else(|| format!("struct {name} has no {field}"))?;
                let kind = btf
                    .type_by_id::<BtfType<'_>>(member.ty)
                    .ok_or_else(|| format!("{name}.{field} has no type"))?;
                let declared = before.declared(kind, field)?;
                let _ = writeln!(structures, "  {declared};");
            }
            structures.push_str("};\n");
        }
        let Header { guard, flag, .. } = self;
        let before = before.text;
        Ok(format!(
            "\
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs need of the kernel's types: the fields that they use, with the types that the kernel gives them. Where
 * they are is found when the object is loaded (CO-RE). Written by
 *   cargo run -p upcall-bpf --features bpf --example kernel-header{flag}
 * from the BTF of a running kernel, and compared with it by a test. Change the list there.
 */
#ifndef {guard}
#define {guard}

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

{before}{structures}
#pragma clang attribute pop

#endif
"
        ))
    }
}

/// What must be declared before the structures.
struct Before<'a> {
    btf: &'a Btf<'a>,
    text: String,
    known: BTreeSet<String>,
}

impl Before<'_> {
    /// The declaration of something of this type and name. A function is a pointer to one without arguments: the kernel knows
    /// them.
    fn declared(&mut self, kind: BtfType<'_>, name: &str) -> Result<String, String> {
        let kind = plain(kind);
        let Ok(pointer) = Ptr::try_from(kind) else {
            if let Ok(array) = Array::try_from(kind) {
                let of = self.named(plain(array.contained_type()))?;
                return Ok(format!("{of} {name}[{}]", array.capacity()));
            }
            return Ok(format!("{} {name}", self.named(kind)?));
        };
        let mut target = plain(pointer.referenced_type());
        while let Ok(typedef) = Typedef::try_from(target) {
            target = plain(typedef.referenced_type());
        }
        if FuncProto::try_from(target).is_ok() {
            return Ok(format!("void (*{name})(void)"));
        }
        let target = match Struct::try_from(target) {
            Ok(_) => format!("struct {}", name_of(&target)?),
            Err(_) => self.named(target)?,
        };
        Ok(format!("{target} *{name}"))
    }

    /// What a type is called.
    fn named(&mut self, kind: BtfType<'_>) -> Result<String, String> {
        let own = name_of(&kind)?;
        if Int::try_from(kind).is_ok() {
            return Ok(own);
        }
        if Struct::try_from(kind).is_ok() {
            return Ok(format!("struct {own}"));
        }
        if let Ok(numbers) = Enum::try_from(kind) {
            if self.known.insert(format!("enum {own}")) {
                // The first alone: others come with new kernels.
                let number = numbers.iter().next().ok_or("an enum without numbers")?;
                let name = number.name.ok_or("a number without a name")?;
                let text = format!(
                    "enum {own} {{\n  {} = {},\n}};\n",
                    name.to_string_lossy(),
                    number.value
                );
                self.text.push_str(&text);
            }
            return Ok(format!("enum {own}"));
        }
        let typedef = Typedef::try_from(kind).map_err(|_| "a type of another kind")?;
        if self.known.contains(&own) {
            return Ok(own);
        }
        let target = plain(typedef.referenced_type());
        let text = match Struct::try_from(target) {
            Ok(structure) if target.name().is_none() => {
                let mut fields = String::new();
                for member in structure.iter() {
                    let kind = self.btf.type_by_id::<BtfType<'_>>(member.ty);
                    let name = member.name.ok_or("a field without a name")?;
                    let kind = kind.ok_or("a field without a type")?;
                    let declared = self.declared(kind, &name.to_string_lossy())?;
                    let _ = writeln!(fields, "  {declared};");
                }
                format!("typedef struct {{\n{fields}}} {own};\n")
            }
            _ => format!("typedef {};\n", self.declared(target, &own)?),
        };
        self.text.push_str(&text);
        self.known.insert(own.clone());
        Ok(own)
    }
}

fn name_of(kind: &BtfType<'_>) -> Result<String, String> {
    let name = kind.name().ok_or("a type without a name")?;
    Ok(name.to_string_lossy().into_owned())
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
