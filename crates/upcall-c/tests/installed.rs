//! The C library as a program finds it: installed, and compiled against by the names that the guide gives.
//!
//! Programs under `tests/programs` run without a runtime, with ones of 1, 2 and 4 virtual processors and time slices
//! of 5 ms and 100 µs, with the one that the first thread starts, and under `upcall run`. They abort where something does not hold,
//! and end by alarm(2) where they hang.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use program_tests::launcher::Launcher;
use program_tests::provision;
use program_tests::release::built;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Where the library is installed, built from what is here.
fn installed() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let prefix = scratch().join("installed");
        let _ = fs::remove_dir_all(&prefix);
        done(
            Command::new(Path::new(ROOT).join("install"))
                .arg("library")
                .env_clear()
                .env("PATH", std::env::var_os("PATH").unwrap_or_default())
                .env("PREFIX", &prefix)
                .env("UPCALL_BUILD", built(scratch())),
        );
        prefix
    })
}

/// Runs it; it must end with 0.
fn done(command: &mut Command) -> Output {
    let output = command.output().expect("can be started");
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// What pkg-config says of the library, or what it would say.
fn flags(case: &str, linking: &str) -> Vec<String> {
    let prefix = installed();
    let Some(pkg_config) = provision::program(case, "pkg-config", "pkg-config") else {
        let prefix = prefix.display();
        return vec![
            format!("-I{prefix}/include"),
            format!("-L{prefix}/lib"),
            "-lupcall".into(),
        ];
    };
    let output = done(
        Command::new(pkg_config)
            .args(["--cflags", "--libs", linking, "upcall"])
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")),
    );
    let line = String::from_utf8(output.stdout).expect("text");
    line.split_whitespace().map(str::to_owned).collect()
}

/// The compiler of a source, with the language's flags.
fn compiler(case: &str, file: &str) -> Option<Command> {
    let (name, package, language) = match file.ends_with(".cpp") {
        true => ("c++", "g++", "-std=c++20"),
        false => ("cc", "gcc", "-std=c11"),
    };
    let mut command = Command::new(provision::program(case, name, package)?);
    command
        .args([language, "-O2", "-g1", "-pthread", "-D_GNU_SOURCE"])
        .args(WARNINGS);
    Some(command)
}

/// Compiles a program; `None`: skipped aloud.
fn compile(case: &str, file: &str) -> Option<PathBuf> {
    let program = scratch().join(case);
    let mut compiler = compiler(case, file)?;
    let rpath = format!("-Wl,-rpath,{}/lib", installed().display());
    done(
        compiler
            .arg("-o")
            .arg(&program)
            .arg(Path::new(SOURCES).join(file))
            .args(flags(case, "--print-errors"))
            .arg(rpath),
    );
    Some(program)
}

/// The program without what the environment says of the runtime.
fn run(program: &Path, mode: &str) -> Command {
    let mut words: Vec<OsString> = Vec::new();
    if mode == "preloaded" {
        words.extend(Launcher::chosen(scratch()).words().iter().cloned());
    }
    words.push(program.into());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env("MODE", mode);
    for name in [
        "UPCALL_VPS",
        "UPCALL_SLICE_US",
        "UPCALL_POLICY",
        "UPCALL_STATS",
    ] {
        command.env_remove(name);
    }
    command
}

/// The modes that there are here.
fn modes() -> &'static [&'static str] {
    const MODES: &[&str] = &[
        "native",
        "1,5000",
        "2,5000",
        "4,5000",
        "1,100",
        "2,100",
        "4,100",
        "default",
        "preloaded",
    ];
    if upcall_linux::arch::SERVES_PROGRAMS {
        return MODES;
    }
    provision::skip("installed", "with a runtime: not on this architecture");
    &["default"]
}

fn in_all_modes(case: &str, file: &str) {
    let Some(program) = compile(case, file) else {
        return;
    };
    for mode in modes() {
        let output = done(&mut run(&program, mode));
        assert_eq!(output.stdout, b"ok\n", "{case} in mode {mode}");
    }
}

#[test]
fn threads() {
    in_all_modes("threads", "threads.c");
}

#[test]
fn forks() {
    in_all_modes("forks", "forks.c");
}

#[test]
fn forks_whose_thread_ends() {
    let case = "forks_left";
    in_all_modes(case, "forks_left.c");
    in_all_modes("forks_thrown", "forks_thrown.cpp");
    let Some(program) = compile(case, "forks_left.c") else {
        return;
    };
    let own = modes().iter().filter(|mode| mode.contains(','));
    for mode in own.chain(["default"].iter().filter(|_| modes().len() > 1)) {
        for begun in ["begun", "not begun"] {
            for how in ["exits", "is over", "is cancelled", "exits the process"] {
                for place in ["stack", "static"] {
                    // Another virtual processor could begin it when that frame is gone.
                    if begun != "begun" && place == "stack" && !mode.starts_with("1,") {
                        continue;
                    }
                    let mut command = run(&program, mode);
                    let output = command.args([how, begun, place]).output().expect("runs");
                    let expected = match how {
                        "exits the process" => (Some(5), None, ""),
                        _ => (
                            None,
                            Some(libc::SIGABRT),
                            "upcall: a thread has ended before it joined what it had forked\n",
                        ),
                    };
                    let errors = String::from_utf8_lossy(&output.stderr);
                    let status = output.status;
                    assert_eq!(
                        (status.code(), status.signal(), &*errors),
                        expected,
                        "{mode} {how} {begun} {place}"
                    );
                }
            }
        }
    }
}

#[test]
fn critical_sections() {
    in_all_modes("critical", "critical.c");
}

#[test]
fn synchronization_beside_pthreads() {
    in_all_modes("sync", "sync.c");
}

#[test]
fn a_mutex_freed_by_its_last_user() {
    in_all_modes("last_use", "last_use.c");
}

#[test]
fn who_waits_alone_is_woken_by_anybody() {
    in_all_modes("woken", "woken.c");
}

#[test]
fn channels() {
    in_all_modes("channels", "channels.c");
}

#[test]
fn cxx() {
    in_all_modes("cxx", "cxx.cpp");
}

#[test]
fn what_is_below_a_stack_pointer_away_from_the_stack_is_left_alone() {
    in_all_modes("stack_pointer", "stack_pointer.c");
}

#[test]
fn errno_is_left_alone() {
    in_all_modes("errno", "errno.c");
}

/// The blocks of code of one language in a text of Markdown.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    let parts = text.split(begin.as_str()).skip(1);
    let blocks = parts.map(|part| part.split("```").next().unwrap_or_default().to_owned());
    blocks.collect()
}

/// Each as it stands, where it is a program; else what a reader would put around it.
#[test]
fn the_guide_compiles() {
    let case = "the_guide_compiles";
    let guide = fs::read_to_string(Path::new(ROOT).join("docs/c.md")).expect("the guide");
    for (language, extension, fewest) in [("c", "c", 2), ("cpp", "cpp", 1)] {
        let blocks = blocks(&guide, language);
        assert!(blocks.len() >= fewest, "{} of {language}", blocks.len());
        for (number, block) in blocks.iter().enumerate() {
            let is_program = block.contains("int main(");
            let text = match block.contains("#include") {
                true if is_program => block.clone(),
                true => format!("{block}\nint main() {{}}\n"),
                false => {
                    format!("#include <upcall.h>\nint main(void)\n{{\n{block}\nreturn error;\n}}\n")
                }
            };
            let source = scratch().join(format!("guide_{number}.{extension}"));
            fs::write(&source, &text).expect("writes");
            let Some(program) = compile(case, source.to_str().expect("text")) else {
                return;
            };
            let output = done(&mut run(&program, ""));
            let expected: &[u8] = if is_program { b"549755289600\n" } else { b"" };
            assert_eq!(output.stdout, expected, "{text}");
        }
    }
}

#[test]
fn the_more_urgent_first() {
    if let Some(program) = compile("priority", "priority.c")
        && modes().len() > 1
    {
        assert_eq!(done(&mut run(&program, "")).stdout, b"ok\n");
    }
}

#[test]
fn policies_of_the_programs_own() {
    if let Some(program) = compile("policy", "policy.c")
        && modes().len() > 1
    {
        for what in ["own", "deadline"] {
            assert_eq!(done(run(&program, "").arg(what)).stdout, b"ok\n");
        }
    }
}

#[test]
fn exceptions_that_nobody_gets_end_the_process() {
    let Some(program) = compile("cxx_terminates", "cxx_terminates.cpp") else {
        return;
    };
    for mode in modes() {
        for arguments in [&[] as &[&str], &["c"]] {
            let output = run(&program, mode).args(arguments).output().expect("runs");
            assert_eq!(
                (output.status.code(), &*output.stdout),
                (Some(7), &b"terminated\n"[..]),
                "{mode} {arguments:?}: {output:?}"
            );
        }
    }
}

/// It was what the last thread had left there; and where the first thread had touched it, others were overwritten.
#[test]
fn storage_of_a_loaded_library_is_stale() {
    let case = "storage_of_a_loaded_library_is_stale";
    let Some(program) = compile(case, "dlopened_storage.c") else {
        return;
    };
    let Some(mut compiler) = compiler(case, "plugin.c") else {
        return;
    };
    let plugin = scratch().join("plugin.so");
    let source = Path::new(SOURCES).join("plugin.c");
    done(
        compiler
            .args(["-shared", "-fPIC", "-o"])
            .arg(&plugin)
            .arg(source),
    );
    for mode in modes() {
        let output = done(run(&program, mode).arg(&plugin));
        assert_eq!(output.stdout, b"ok\n", "in mode {mode}");
    }
}

/// A thread of the library's own that had not run yet kept the process for ever.
#[test]
fn a_process_ends_with_its_last_thread() {
    if let Some(program) = compile("ends_last", "ends_last.c")
        && modes().len() > 1
    {
        for vps in ["1", "2"] {
            assert_eq!(
                done(run(&program, "").env("UPCALL_VPS", vps)).stdout,
                b"ok\n",
                "{vps}"
            );
        }
    }
}

/// libupcall.a serves as well, with what pkg-config says of the libraries below it.
#[test]
fn linked_statically() {
    let case = "linked_statically";
    let Some(mut compiler) = compiler(case, "threads.c") else {
        return;
    };
    let program = scratch().join(case);
    let mut libraries = flags(case, "--static");
    for word in &mut libraries {
        if word == "-lupcall" {
            *word = installed().join("lib/libupcall.a").display().to_string();
        }
    }
    let source = Path::new(SOURCES).join("threads.c");
    if provision::find("pkg-config").is_none() {
        return;
    }
    done(compiler.arg("-o").arg(&program).arg(source).args(libraries));
    for mode in modes() {
        assert_eq!(
            done(&mut run(&program, mode)).stdout,
            b"ok\n",
            "in mode {mode}"
        );
    }
}

/// A program without a dynamic linker is linked with what pkg-config says. It cannot be served, is told so, and
/// works on threads of pthreads.
#[test]
fn a_static_program() {
    works_without_a_runtime("a_static_program", &["-static"], &[]);
}

/// LeakSanitizer complained of what threads keep; ThreadSanitizer saw races in every switch.
#[test]
fn programs_with_a_sanitizer() {
    for sanitizer in ["address", "leak", "thread"] {
        let case = format!("programs_with_{sanitizer}_sanitizer");
        let flag = format!("-fsanitize={sanitizer}");
        works_without_a_runtime(&case, &[&flag], &[]);
    }
}

/// Valgrind died without a word.
#[test]
fn a_program_under_valgrind() {
    let case = "a_program_under_valgrind";
    if let Some(valgrind) = provision::program(case, "valgrind", "valgrind") {
        let valgrind = valgrind.to_str().expect("text");
        works_without_a_runtime(case, &[], &[valgrind, "-q", "--error-exitcode=9"]);
    }
}

/// Compiles a program with these flags and runs it by `starter`: it works, and asking for a runtime is answered.
fn works_without_a_runtime(case: &str, options: &[&str], starter: &[&str]) {
    let Some(mut compiler) = compiler(case, "unserved.c") else {
        return;
    };
    let program = scratch().join(case);
    let is_static = options.contains(&"-static");
    let linking = if is_static {
        "--static"
    } else {
        "--print-errors"
    };
    let source = Path::new(SOURCES).join("unserved.c");
    compiler.args(options).arg("-o").arg(&program).arg(source);
    compiler.args(flags(case, linking));
    if !is_static {
        compiler.arg(format!("-Wl,-rpath,{}/lib", installed().display()));
    }
    let compiled = compiler.output().expect("can be started");
    let said = String::from_utf8_lossy(&compiled.stderr);
    if !compiled.status.success() && options.iter().any(|flag| flag.contains("sanitize")) {
        provision::skip(case, &format!("the compiler has no such library: {said}"));
        return;
    }
    assert!(compiled.status.success(), "{said}");
    let mut words: Vec<&Path> = starter.iter().map(Path::new).collect();
    words.push(&program);
    let output = done(Command::new(words[0]).args(&words[1..]));
    assert_eq!(output.stdout, b"ok\n", "{output:?}");
}

/// A pair of tools may include the header alone, first, in any of these languages.
#[test]
fn headers_stand_alone() {
    let case = "headers_stand_alone";
    let languages = [
        ("cc", "gcc", "upcall.h", &["-xc", "-std=c11"]),
        ("cc", "gcc", "upcall.h", &["-xc", "-std=gnu17"]),
        ("c++", "g++", "upcall.h", &["-xc++", "-std=c++11"]),
        ("c++", "g++", "upcall.h", &["-xc++", "-std=c++20"]),
        ("c++", "g++", "upcall.hpp", &["-xc++", "-std=c++20"]),
        ("c++", "g++", "upcall.hpp", &["-xc++", "-std=c++23"]),
    ];
    for (name, package, header, language) in languages {
        let Some(compiler) = provision::program(case, name, package) else {
            continue;
        };
        let source = scratch().join(format!("alone_{header}.c"));
        fs::write(&source, format!("#include <{header}>\n")).expect("writes");
        done(
            Command::new(compiler)
                .args(language)
                .args(WARNINGS)
                .arg("-fsyntax-only")
                .arg("-I")
                .arg(installed().join("include"))
                .arg(&source),
        );
    }
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(installed().join("include/upcall.h")).expect("reads");
    // Declarations begin a line; comments and fields do not begin so.
    let names = header
        .lines()
        .filter(|line| {
            ["int ", "void ", "void *", "upcall_thread_t "]
                .iter()
                .any(|kind| line.starts_with(kind))
        })
        .map(|line| {
            let end = line.find('(').expect("a function");
            let begin = line[..end].rfind([' ', '*']).expect("a type before it") + 1;
            line[begin..end].to_owned()
        });
    names.collect()
}

#[test]
fn what_is_declared_is_what_is_there() {
    let library = fs::read(installed().join("lib/libupcall.so")).expect("reads");
    let elf = goblin::elf::Elf::parse(&library).expect("a shared library");
    assert_eq!(elf.soname, Some("libupcall.so.0"));
    let defined: BTreeSet<String> = elf
        .dynsyms
        .iter()
        .filter(|symbol| symbol.st_shndx != 0 && symbol.is_function())
        .map(|symbol| elf.dynstrtab[symbol.st_name].to_owned())
        .collect();
    assert!(declared().len() > 60, "{} functions", declared().len());
    assert_eq!(declared(), defined);
}

#[test]
fn every_function_has_a_manual_page() {
    let pages = installed().join("share/man/man3");
    let groff = provision::program("every_function_has_a_manual_page", "groff", "groff");
    let mut named = BTreeSet::new();
    for entry in fs::read_dir(&pages).expect("pages").flatten() {
        let path = entry.path();
        let text = fs::read_to_string(&path).expect("reads");
        let page = path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if let Some(other) = text.strip_prefix(".so man3/") {
            assert!(pages.join(other.trim()).exists(), "{page} is {other}");
            named.insert(page);
            continue;
        }
        // What it is about: the names before the dash.
        let names = text
            .split(".SH NAME\n")
            .nth(1)
            .and_then(|rest| rest.split(" \\- ").next());
        let names = names.unwrap_or_else(|| panic!("{page} has a name"));
        for name in names
            .split([',', ' ', '\n'])
            .filter(|name| name.starts_with("upcall_"))
        {
            assert!(text.contains(&format!("{name}(")), "{page} shows {name}");
            assert!(
                name == page || pages.join(format!("{name}.3")).exists(),
                "{name} has a file"
            );
            named.insert(name.to_owned());
        }
        if let Some(groff) = &groff {
            let output = done(
                Command::new(groff)
                    .args(["-man", "-ww", "-z", "-Tutf8"])
                    .arg(&path),
            );
            assert!(
                output.stderr.is_empty(),
                "{page}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    assert_eq!(
        declared().difference(&named).collect::<Vec<_>>(),
        Vec::<&String>::new()
    );
    assert_eq!(
        named.difference(&declared()).collect::<Vec<_>>(),
        Vec::<&String>::new()
    );
}
