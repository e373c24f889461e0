//! Executables written by hand, each wrong in one way.

use super::*;

/// A file with a header, three program headers, an interpreter and a dynamic section.
struct Crafted {
    machine: u16,
    kind: u16,
    linker: Option<&'static str>,
    needed: Vec<&'static str>,
    symbols: Vec<&'static str>,
}

impl Default for Crafted {
    fn default() -> Self {
        Self {
            machine: EM_X86_64,
            kind: ET_DYN,
            linker: Some("/lib64/ld-linux-x86-64.so.2"),
            needed: vec!["libm.so.6", "libc.so.6"],
            symbols: vec!["main"],
        }
    }
}

/// The file is refused for that reason, with that evidence.
macro_rules! assert_unfit {
    ($file:expr, $reason:ident, $evidence:expr) => {
        let verdict = examine($file);
        assert!(
            matches!(&verdict, Err(Unfit::$reason(evidence)) if evidence.contains($evidence)),
            "{verdict:?}"
        );
    };
}

impl Crafted {
    fn bytes(&self) -> Vec<u8> {
        const LOADED_AT: u64 = 0x40_0000;
        let mut strings = vec![0u8];
        let mut add = |name: &str| {
            let at = strings.len() as u64;
            strings.extend(name.as_bytes());
            strings.push(0);
            at
        };
        let needed: Vec<u64> = self.needed.iter().map(|name| add(name)).collect();
        for symbol in &self.symbols {
            add(symbol);
        }
        let linker = self.linker.map(|name| format!("{name}\0").into_bytes());
        let linker = linker.unwrap_or_default();
        let headers = 2 + u64::from(!linker.is_empty());
        let linker_at = 64 + headers * 56;
        let strings_at = linker_at + linker.len() as u64;
        let dynamic_at = strings_at + strings.len() as u64;
        let mut dynamic: Vec<(u64, u64)> = needed.iter().map(|&at| (DT_NEEDED, at)).collect();
        dynamic.push((DT_STRTAB, LOADED_AT + strings_at));
        dynamic.push((DT_STRSZ, strings.len() as u64));
        dynamic.push((DT_NULL, 0));
        let end = dynamic_at + dynamic.len() as u64 * 16;

        let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
        file.resize(16, 0);
        let half = |file: &mut Vec<u8>, value: u16| file.extend(value.to_le_bytes());
        let whole = |file: &mut Vec<u8>, value: u32| file.extend(value.to_le_bytes());
        let long = |file: &mut Vec<u8>, value: u64| file.extend(value.to_le_bytes());
        half(&mut file, self.kind);
        half(&mut file, self.machine);
        whole(&mut file, 1);
        for value in [LOADED_AT, 64, 0] {
            long(&mut file, value);
        }
        whole(&mut file, 0);
        let count = u16::try_from(headers).expect("few");
        for value in [64, 56, count, 64, 0, 0] {
            half(&mut file, value);
        }
        let mut entry = |kind: u32, at: u64, length: u64| {
            whole(&mut file, kind);
            whole(&mut file, 5);
            for value in [at, LOADED_AT + at, LOADED_AT + at, length, length, 1] {
                long(&mut file, value);
            }
        };
        entry(PT_LOAD, 0, end);
        if !linker.is_empty() {
            entry(PT_INTERP, linker_at, linker.len() as u64);
        }
        entry(PT_DYNAMIC, dynamic_at, end - dynamic_at);
        file.extend(linker);
        file.extend(strings);
        for (tag, value) in dynamic {
            long(&mut file, tag);
            long(&mut file, value);
        }
        assert_eq!(file.len() as u64, end);
        file
    }
}

#[test]
fn an_ordinary_program_is_served() {
    assert_eq!(examine(&Crafted::default().bytes()), Ok(()));
    let fixed = Crafted {
        kind: ET_EXEC,
        ..Crafted::default()
    };
    assert_eq!(examine(&fixed.bytes()), Ok(()));
}

#[test]
fn another_place_of_the_linker_is_no_matter() {
    let nix = Crafted {
        linker: Some("/nix/store/x-glibc-2.40/lib/ld-linux-x86-64.so.2"),
        ..Crafted::default()
    };
    assert_eq!(examine(&nix.bytes()), Ok(()));
}

#[test]
fn a_static_program_is_refused() {
    let no_linker = Crafted {
        linker: None,
        ..Crafted::default()
    };
    assert_unfit!(&no_linker.bytes(), Static, "PT_INTERP");
    let no_libc = Crafted {
        needed: vec!["libother.so.1"],
        ..Crafted::default()
    };
    assert_unfit!(&no_libc.bytes(), Static, "libother.so.1");
}

#[test]
fn musl_is_refused_by_name() {
    let musl = Crafted {
        linker: Some("/lib/ld-musl-x86_64.so.1"),
        needed: vec!["libc.musl-x86_64.so.1"],
        ..Crafted::default()
    };
    assert_unfit!(&musl.bytes(), OtherLibc, "ld-musl");
}

#[test]
fn other_processors_are_refused() {
    let arm = Crafted {
        machine: 183,
        linker: Some("/lib/ld-linux-aarch64.so.1"),
        ..Crafted::default()
    };
    assert_unfit!(&arm.bytes(), OtherMachine, "183");
    let mut narrow = Crafted::default().bytes();
    narrow[EI_CLASS] = 1;
    assert_unfit!(&narrow, OtherMachine, "32-bit");
    let mut big = Crafted::default().bytes();
    big[EI_DATA] = 2;
    assert_unfit!(&big, OtherMachine, "big-endian");
}

#[test]
fn sanitizers_are_refused_shared_or_linked_in() {
    let shared = Crafted {
        needed: vec!["libtsan.so.2", "libc.so.6"],
        ..Crafted::default()
    };
    assert_unfit!(&shared.bytes(), Sanitizer, "libtsan");
    let linked = Crafted {
        symbols: vec!["main", "__tsan_init"],
        ..Crafted::default()
    };
    assert_unfit!(&linked.bytes(), Sanitizer, "__tsan_init");
    let alike = Crafted {
        symbols: vec!["my__tsan_init", "__tsan_init_2"],
        ..Crafted::default()
    };
    assert_eq!(examine(&alike.bytes()), Ok(()));
}

#[test]
fn libraries_and_objects_are_no_programs() {
    let object = Crafted {
        kind: 1,
        ..Crafted::default()
    };
    assert!(matches!(examine(&object.bytes()), Err(Unfit::Broken(_))));
}

#[test]
fn every_truncation_has_a_verdict() {
    let whole = Crafted::default().bytes();
    for length in 0..whole.len() {
        assert!(examine(&whole[..length]).is_err(), "cut at {length}");
    }
}

#[test]
fn every_single_damaged_byte_has_a_verdict() {
    let whole = Crafted::default().bytes();
    let (mut served, mut refused) = (0, 0);
    for at in 0..whole.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] ^= flip;
            match examine(&damaged) {
                Ok(()) => served += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(served > 0 && refused > 0);
}

#[test]
fn this_test_is_itself_a_program_that_can_be_served() {
    let path = std::env::current_exe().expect("a path");
    let file = std::fs::read(path).expect("readable");
    assert_eq!(examine(&file), Ok(()));
}

proptest::proptest! {
    #[test]
    fn a_damaged_program_is_a_verdict_and_no_crash(
        changes in proptest::collection::vec((proptest::prelude::any::<proptest::sample::Index>(), proptest::num::u8::ANY), 0..12),
        cut in proptest::prelude::any::<proptest::sample::Index>(),
        whole in proptest::bool::ANY,
    ) {
        let mut file = Crafted::default().bytes();
        proptest::prop_assert_eq!(examine(&file), Ok(()));
        for (place, value) in changes {
            let place = place.index(file.len());
            file[place] = value;
        }
        if !whole {
            let length = cut.index(file.len());
            file.truncate(length);
        }
        let _ = examine(&file);
    }

    #[test]
    fn any_first_line_is_read_within_its_bounds(rest in proptest::collection::vec(proptest::sample::select(b"#!/ \t\nenv-S=a\xff\0".to_vec()), 0..300)) {
        let file = [b"#!".as_slice(), &rest].concat();
        if let Some(line) = crate::script::shebang(&file) {
            proptest::prop_assert!(!line.interpreter.is_empty() && !line.interpreter.contains(&b'\n'));
            if let Some(name) = crate::script::behind_env(&line) {
                proptest::prop_assert!(!name.is_empty());
            }
        }
    }
}
